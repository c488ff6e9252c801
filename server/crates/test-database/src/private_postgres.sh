# Runs a private PostgreSQL server until its standard input ends, and removes it then, also if the test was killed.
# Arguments: folder of the programs, port, whether to wait for the disk (on or off), port of PgBouncer, which is started
# if it is installed, and the port of the primary if the server is a standby.
# Commands on standard input: "stop fast", "stop immediate" (as a crash), "start", "promote" (a standby), "set LINE" (a
# setting, from the next start on) and "forget primary" (a stopped standby). Each is answered with a line.
bin=$1 port=$2 fsync=$3 pooled=$4 primary=$5
dir=$(mktemp -d)
end() { [ -f "$dir/pgbouncer.pid" ] && kill "$(cat "$dir/pgbouncer.pid")"; "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"; }
trap end EXIT
start() {
  "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w start >/dev/null 2>&1 </dev/null && echo "ready $dir" ||
    { echo failed; tail -5 "$dir/log" >&2; }
}
if [ -n "$primary" ]; then
  "$bin/pg_basebackup" -h 127.0.0.1 -p "$primary" -U trefoil -D "$dir/data" -R -X stream -c fast --no-sync
else
  "$bin/initdb" -D "$dir/data" -U trefoil -A trust -E UTF8 --locale=C --no-sync
fi >/dev/null 2>"$dir/initdb" || { cat "$dir/initdb" >&2; echo failed; exit 1; }
cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = ''
fsync = $fsync
full_page_writes = $fsync
max_connections = 200
max_wal_size = 2GB
CONF
if command -v pgbouncer >/dev/null; then
  cat >"$dir/pgbouncer.ini" <<CONF
[databases]
* = host=127.0.0.1 port=$port user=trefoil
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $pooled
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
pidfile = $dir/pgbouncer.pid
logfile = $dir/pgbouncer.log
CONF
  pgbouncer -q -d "$dir/pgbouncer.ini" 2>/dev/null
fi
start
while read -r command; do
  case $command in
  "stop "*) "$bin/pg_ctl" -D "$dir/data" -m "${command#stop }" stop >/dev/null 2>&1; echo stopped ;;
  start) start ;;
  promote) "$bin/pg_ctl" -D "$dir/data" -w promote >/dev/null 2>&1 && echo promoted || echo failed ;;
  "forget primary") rm "$dir/data/standby.signal"; echo forgotten ;;
  "set "*) echo "${command#set }" >>"$dir/data/postgresql.auto.conf"; echo set ;;
  esac
done

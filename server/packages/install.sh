#!/bin/sh
# Installs the programs of Trefoil for this user, or removes them: `install.sh --help`. It needs no rights of root.
set -eu

# The address of the folder with the files of the release; empty in the sources.
releases='@RELEASES@'
programs='trefoil trefoil-tui trefoil-conformance'

usage() {
  cat <<USAGE
Usage: install.sh [--from FOLDER-OR-URL] [--to FOLDER] [--uninstall]

  --from        where the files of a release are; SHA256SUMS is one of them
                (default: ${releases:-the folder of this script})
  --to          folder for the programs (default: \$XDG_BIN_HOME, or ~/.local/bin)
  --uninstall   removes the programs; data, settings and keys stay
USAGE
}

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

from='' to='' uninstall=''
while [ $# -gt 0 ]; do
  case $1 in
    --from | --to)
      [ $# -ge 2 ] || fail "$1 needs a value; --help shows the options"
      [ "$1" = --from ] && from=$2
      [ "$1" = --to ] && to=$2
      shift 2
      ;;
    --uninstall) uninstall=yes && shift ;;
    -h | --help) usage && exit ;;
    *) fail "unknown option '$1'; --help shows the options" ;;
  esac
done

: "${to:=${XDG_BIN_HOME:-${HOME:?is not set; pass --to}/.local/bin}}"

if [ -n "$uninstall" ]; then
  removed=''
  for program in $programs; do
    [ -e "$to/$program" ] || continue
    rm -f "$to/$program" || fail "cannot remove $to/$program"
    echo "removed $to/$program"
    removed=yes
  done
  [ -n "$removed" ] || echo "there is nothing to remove in $to"
  exit
fi

# Beside the script, or at the address of the releases. A script that is read from a pipe has no folder.
if [ -z "$from" ]; then
  case $releases in http*) from=$releases ;; esac
  case $0 in */*) [ ! -e "${0%/*}/SHA256SUMS" ] || from=${0%/*} ;; esac
fi
[ -n "$from" ] || fail 'no release is beside this script; pass --from FOLDER-OR-URL'

[ "$(uname -s)" = Linux ] || fail "no programs are built for $(uname -s); install from the sources: \
cargo install --locked --path server"
case $(uname -m) in
  x86_64 | amd64) machine=x86_64 ;;
  aarch64 | arm64) machine=aarch64 ;;
  *) fail "no programs are built for $(uname -m); install from the sources: cargo install --locked --path server" ;;
esac

work=$(mktemp -d) || fail 'cannot make a temporary folder'
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Copies or downloads a file of the release into the work folder.
get() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null 2>&1; then
        curl -fsSL -o "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      elif command -v wget >/dev/null 2>&1; then
        wget -q -O "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      else
        fail 'curl or wget is needed for a download'
      fi
      ;;
    *) cp "$from/$1" "$work/$1" || fail "cannot read $from/$1" ;;
  esac
}

digest() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1"
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 "$1"
  else
    fail 'sha256sum or shasum is needed, to check the download'
  fi
}

get SHA256SUMS
archive=$(sed -n "s/^[0-9a-f]\{64\}  \(trefoil-[^/ ]*-$machine-linux\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
case $archive in
  '') fail "SHA256SUMS in $from names no archive for $machine" ;;
  *'
'*) fail "SHA256SUMS in $from names several archives for $machine" ;;
esac
get "$archive"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
found=$(digest "$work/$archive") || exit 1
found=${found%% *}
[ "$found" = "$expected" ] || fail "$archive has the SHA-256 digest $found instead of $expected; nothing was installed"
tar -xzf "$work/$archive" -C "$work" || fail "$archive cannot be unpacked; nothing was installed"

mkdir -p "$to" || fail "cannot make $to; pass --to FOLDER"
for program in $programs; do
  # A running program cannot be overwritten, but replaced.
  cp "$work/${archive%.tar.gz}/$program" "$to/.$program.new" || fail "cannot write to $to; pass --to FOLDER"
  chmod 755 "$to/.$program.new"
  mv -f "$to/.$program.new" "$to/$program"
  echo "installed $to/$program"
done
echo "version: $("$to/trefoil" --version)"

case :$PATH: in
  *":$to:"*) start=trefoil ;;
  *)
    # The words are for the reader's shell.
    # shellcheck disable=SC2016
    printf '%s is not in PATH; add it: export PATH="%s:$PATH"\n' "$to" "$to"
    start=$to/trefoil
    ;;
esac
echo "start a server: $start serve"

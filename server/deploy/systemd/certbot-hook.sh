#!/bin/sh
# Gives a renewed certificate to Trefoil. Certbot runs it after each renewal if it is linked:
#   ln -s /usr/share/trefoil/certbot-hook.sh /etc/letsencrypt/renewal-hooks/deploy/trefoil
# It copies chain and key to /etc/trefoil/tls, readable by the service, and lets it read them again. Settings:
#   [server]
#   certificate = "/etc/trefoil/tls/chain.pem"
#   private_key = "/etc/trefoil/tls/key.pem"
# With several certificates, set TREFOIL_LINEAGE in /etc/default/trefoil to the folder of the right one.
set -e
[ -f /etc/default/trefoil ] && . /etc/default/trefoil
lineage=${TREFOIL_LINEAGE:-$RENEWED_LINEAGE}
[ "$lineage" = "$RENEWED_LINEAGE" ] || exit 0
folder=/etc/trefoil/tls
install -d -m 0750 -o root -g trefoil "$folder"
# Both under other names first, so that the server never reads a part of a file.
install -m 0640 -o root -g trefoil "$lineage/fullchain.pem" "$folder/chain.pem.new"
install -m 0640 -o root -g trefoil "$lineage/privkey.pem" "$folder/key.pem.new"
mv "$folder/key.pem.new" "$folder/key.pem"
mv "$folder/chain.pem.new" "$folder/chain.pem"
if systemctl --quiet is-active trefoil.service; then
    systemctl reload trefoil.service
fi

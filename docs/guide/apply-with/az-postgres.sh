#!/bin/sh
# Applies settings to a flexible server of Azure Database for PostgreSQL, and restarts it where one takes that.
# It was never tried on the real service: only its calls were checked, with a program in place of `az`.
#
#   AZ_GROUP=mine AZ_SERVER=db1 pgdyno compare … --apply-with ./az-postgres.sh
set -eu
: "${AZ_GROUP:?names the resource group}" "${AZ_SERVER:?names the server}"

restart=no
while IFS= read -r line; do
    name=${line%%=*} value=${line#*=}
    waits=$(az postgres flexible-server parameter set --resource-group "$AZ_GROUP" --server-name "$AZ_SERVER" \
        --name "$name" --value "$value" --query isConfigPendingRestart --output tsv < /dev/null)
    if [ "$waits" = true ]; then
        restart=yes
    fi
done
if [ "$restart" = yes ]; then
    az postgres flexible-server restart --resource-group "$AZ_GROUP" --name "$AZ_SERVER" > /dev/null
fi

#!/bin/sh
# Applies settings to a cluster of Patroni by its dynamic configuration, and restarts the members that wait for it.
# It was never tried on a real cluster: only its calls were checked, with a program in place of `patronictl`.
#
#   PATRONI_CLUSTER=main pgdyno compare … --apply-with ./patronictl.sh
#
# patronictl finds its own configuration as always: PATRONICTL_CONFIG_FILE, or ~/.config/patroni/patronictl.yaml.
# Patroni reads the dynamic configuration every `loop_wait` seconds, 10 by default; only then it knows who waits for a restart.
set -eu
: "${PATRONI_CLUSTER:?names the cluster}"

while IFS= read -r line; do
    set -- "$@" --pg "$line"
done
patronictl edit-config "$PATRONI_CLUSTER" --force --quiet "$@" < /dev/null
sleep "${PATRONI_WAIT_S:-25}"
# Without members that wait, this restarts none.
patronictl restart "$PATRONI_CLUSTER" --pending --force < /dev/null

#!/bin/sh
# Restores pgdyno's data from a snapshot of the logical volume that pgdyno's home lies on.
# It was never tried with LVM: only its calls were checked, with programs in place of lvcreate, lvremove and mount.
#
#   LV=vg/pgdata SNAPSHOT_SIZE=50G pgdyno bench --home /mnt/pgdata/pgdyno --restore-command ./lvm.sh
#   LV=vg/pgdata PGDYNO_SLOT=main ./lvm.sh remove         after the study, once for each slot
#
# The snapshot must have room for what a trial changes. Of a thin volume, leave SNAPSHOT_SIZE empty.
set -eu
: "${LV:?names the logical volume of the home, such as vg/pgdata}"
snapshot=${LV%/*}/pgdyno-$PGDYNO_SLOT
mounted=/run/pgdyno-snapshot-$PGDYNO_SLOT

if [ "${1:-}" != remove ] && mountpoint -q "$PGDYNO_DATA"; then
    umount "$PGDYNO_DATA"
fi
if mountpoint -q "$mounted"; then
    umount "$mounted"
fi
if lvs "$snapshot" > /dev/null 2>&1; then
    lvremove --yes --quiet "$snapshot"
fi
if [ "${1:-}" = remove ]; then
    exit 0
fi

root=$(findmnt --noheadings --output TARGET --target "$PGDYNO_TEMPLATE")
options=rw
if [ "$(findmnt --noheadings --output FSTYPE --target "$PGDYNO_TEMPLATE")" = xfs ]; then
    options=nouuid
fi
sync --file-system "$PGDYNO_TEMPLATE"
if [ -n "${SNAPSHOT_SIZE:-}" ]; then
    lvcreate --quiet --snapshot --size "$SNAPSHOT_SIZE" --name "${snapshot#*/}" "$LV"
else
    lvcreate --quiet --snapshot --setactivationskip n --name "${snapshot#*/}" "$LV"
fi
mkdir -p "$mounted" "$PGDYNO_DATA"
mount --options "$options" "/dev/$snapshot" "$mounted"
mount --bind "$mounted/${PGDYNO_TEMPLATE#"$root"/}" "$PGDYNO_DATA"

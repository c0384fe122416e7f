#!/bin/sh
# Applies settings to an instance of Amazon RDS by its parameter group, and restarts it where one takes that.
# It was never tried on the real service: only its calls were checked, with a program in place of `aws`.
#
#   RDS_INSTANCE=db1 RDS_GROUP=db1-params pgdyno compare … --apply-with ./aws-rds.sh
#
# The group must be one of yours, used by this instance alone. Values stay in it as what they were before, not as "default".
set -eu
: "${RDS_INSTANCE:?names the instance}" "${RDS_GROUP:?names its parameter group}"

describe() {
    aws rds describe-db-parameters --db-parameter-group-name "$RDS_GROUP" \
        --query "Parameters[?ParameterName=='$1'].$2" --output text < /dev/null
}

restart=no
while IFS= read -r line; do
    name=${line%%=*} value=${line#*=}
    # Assigned first: what fails within a condition would not end the script.
    type=$(describe "$name" DataType) applied=$(describe "$name" ApplyType)
    if [ "$type" = boolean ]; then
        case $value in on) value=1 ;; off) value=0 ;; esac
    fi
    method=immediate
    if [ "$applied" = static ]; then
        method=pending-reboot restart=yes
    fi
    # JSON, because a value may hold a comma.
    escaped=$(printf '%s' "$value" | sed 's/[\\"]/\\&/g')
    aws rds modify-db-parameter-group --db-parameter-group-name "$RDS_GROUP" --parameters \
        "[{\"ParameterName\":\"$name\",\"ParameterValue\":\"$escaped\",\"ApplyMethod\":\"$method\"}]" < /dev/null > /dev/null
done
if [ "$restart" = yes ]; then
    aws rds reboot-db-instance --db-instance-identifier "$RDS_INSTANCE" > /dev/null
    aws rds wait db-instance-available --db-instance-identifier "$RDS_INSTANCE"
fi

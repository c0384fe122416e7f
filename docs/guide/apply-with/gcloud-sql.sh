#!/bin/sh
# Applies settings to an instance of Google Cloud SQL by its database flags. Google restarts it where a flag takes that.
# It was never tried on the real service: only its calls were checked, with a program in place of `gcloud`.
#
#   SQL_INSTANCE=db1 pgdyno compare … --apply-with ./gcloud-sql.sh
#
# `patch` replaces all flags, so that those of the instance are read first and given again. Flags that pgdyno's settings add stay
# with the values that the server had before.
set -eu
: "${SQL_INSTANCE:?names the instance}"

new=$(cat)
old=$(gcloud sql instances describe "$SQL_INSTANCE" --flatten='settings.databaseFlags[]' \
    --format='csv[no-heading,separator="="](settings.databaseFlags.name,settings.databaseFlags.value)')
# The last line of a name counts. A tilde separates, because a value may hold a comma.
flags=$(printf '%s\n%s\n' "$old" "$new" | awk -F= '
    NF > 1 { if (!($1 in line)) order[++count] = $1; line[$1] = $0 }
    END { for (i = 1; i <= count; i++) printf "%s%s", (i > 1 ? "~" : ""), line[order[i]] }')
gcloud sql instances patch "$SQL_INSTANCE" --quiet --database-flags="^~^$flags"

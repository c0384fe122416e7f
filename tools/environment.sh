# Makes and keeps the virtual environment of a clone. ./pgdyno and ./check read it after setting `here` (the clone) and
# `consent` (yes: as root, mend a missing package with apt-get). POSIX sh; messages go to stderr.
#
# An environment is whole when it holds a copy of the lock file it was made from. The copy is written last, so whatever
# ends a set-up midway leaves something that the next run makes anew. Users of an environment hold a shared flock on
# it, its maker (and the pip it started) the exclusive one; the kernel drops both with the process, however that ends.
# So two first runs do not meet, and a new lock file does not pull the server's programs from under a running bench.
#
# It refuses to touch a .venv that it did not make.

holder=pgdyno.flock     # the file that is locked; also the mark of an environment made here
newest_minor=14         # the newest that all wheels were seen for
oldest_minor=11

say() { printf 'pgdyno: %s\n' "$*" >&2; }

# fail FACT DETAIL HINT: exit 3, the machine is not fit.
fail() {
  printf 'pgdyno: %s\n' "$1" >&2
  [ -z "$2" ] || printf '%s\n' "$2" | sed 's/^/  /' >&2
  [ -z "$3" ] || printf '  hint: %s\n' "$3" >&2
  exit 3
}

# enter_environment LOCK [VERSION]: sets `venv` to a whole environment for LOCK, held by file descriptor 9 until the
# process ends. With VERSION, an environment made from another Python is made again.
enter_environment() {
  lock=$1
  wanted=${2:-}
  venv=$here/.venv
  if hold_shared && is_whole; then return; fi
  if ! is_ours_to_write; then
    choose_cache_place
    if hold_shared && is_whole; then return; fi
  fi
  make_environment
}

hold_shared() {
  [ -r "$venv/$holder" ] || return 1
  exec 9<"$venv/$holder"
  flock --shared --nonblock 9
}

is_whole() { [ -x "$venv/bin/python" ] && cmp -s "$here/$lock" "$venv/$lock" && has_wanted_python; }

has_wanted_python() { [ -z "$wanted" ] || { probe_python "$venv/bin/python" && [ "$found" = "$wanted" ]; }; }

# A clone of another user is left alone even by root, whose files the owner could not replace.
is_ours_to_write() { [ -O "$here" ] && [ -w "$here" ] && { [ ! -e "$venv" ] || [ -w "$venv" ]; }; }

# A folder of its own for each clone, named by a sum of the clone's path.
choose_cache_place() {
  sum=$(printf '%s' "$here" | cksum)
  home=${HOME:-/nonexistent}
  # sudo may keep HOME: a folder of root's there would be in the way of the account whose home it is.
  if [ "$(id -u)" = 0 ] && [ -d "$home" ] && [ ! -O "$home" ]; then home=~root; fi
  venv=${XDG_CACHE_HOME:-$home/.cache}/pgdyno/venv-${sum%% *}
}

# Root could make even a home that does not exist.
is_place() { [ "${venv#/nonexistent/}" = "$venv" ]; }

make_environment() {
  # The environment must be readable by the account that the server runs as, whatever root's umask.
  old_umask=$(umask)
  if ! { is_place && mkdir -p "${venv%/*}" && umask 022 && mkdir -p "$venv"; } 2>/dev/null; then
    fail "no place for the virtual environment" "$here is not yours to write to, and $venv cannot be made" \
      "set XDG_CACHE_HOME to a folder that you can write to"
  fi
  # Listed before the mark is looked for: another first run may make the mark at any moment.
  content=$(ls -A "$venv")
  if [ -n "$content" ] && [ ! -e "$venv/$holder" ]; then
    fail "$venv was not made by pgdyno" "" "move it away; pgdyno makes its own there"
  fi
  : >>"$venv/$holder"
  exec 9<"$venv/$holder"
  if ! flock --exclusive --nonblock 9; then
    say "waiting for another pgdyno that uses or makes $venv (Ctrl-C gives up)"
    flock --exclusive 9
  fi
  if ! is_whole; then fill_environment; fi
  umask "$old_umask"
  flock --shared 9
}

fill_environment() {
  installing=no
  trap interrupt_set_up INT TERM HUP
  log=$venv/setup.log
  : >"$log"
  began=$(date +%s)
  if [ "$lock" != requirements.lock ] && [ -x "$venv/bin/python" ] &&
    cmp -s "$here/requirements.lock" "$venv/requirements.lock" && [ ! -e "$venv/$lock" ] && has_wanted_python; then
    say "adding the development tools to $venv (once, about 20 s)"
    rm -f "$venv/requirements.lock"
  else
    # First of all, so that a half removed environment never looks whole.
    rm -f "$venv/requirements.lock" "$venv/requirements-dev.lock"
    create_environment
  fi
  install_lock
  trap - INT TERM HUP
  say "ready after $(($(date +%s) - began)) s"
}

interrupt_set_up() {
  # KILL: a pip that is just being started may drop any other signal.
  if [ "$installing" = yes ] && [ -n "${!-}" ]; then
    kill -KILL $! 2>/dev/null || :
    wait $! 2>/dev/null || :
  fi
  say "set-up interrupted; the next run starts it afresh"
  exit 130
}

create_environment() {
  find_python
  say "making the virtual environment $venv with Python $version ($python)"
  say "once, about half a minute on a fast connection: 170 MB to fetch, 620 MB on the disk"
  find "$venv/" -mindepth 1 -maxdepth 1 ! -name "$holder" ! -name setup.log -exec rm -rf {} +
  "$python" -I -m venv --without-pip "$venv" >>"$log" 2>&1 ||
    fail_with_log "Python could not make a virtual environment" "see whether the disk is full; then run it again"
  # Relative inside the clone, so that a moved clone still works.
  source=$here/src
  if [ "$venv" = "$here/.venv" ]; then source=../../../../src; fi
  printf '%s\n' "$source" >"$venv/lib/python${version%.*}/site-packages/pgdyno.pth"
}

# Runs the pip that Python keeps for new environments, from its wheel: to install that pip first takes seconds.
pip='
import ensurepip, os, runpy, sys, sysconfig
folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
sys.path.insert(0, os.path.join(folder, "pip-%s-py3-none-any.whl" % ensurepip.version()))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
'

install_lock() {
  # A machine with nothing on it has no compiler; developers' tools may need one.
  only=--prefer-binary
  if [ "$lock" = requirements.lock ]; then only=--only-binary=:all:; fi
  mkdir -p "$venv/tmp"
  # In the background, because a shell acts on a signal only when its command in the foreground has ended: a pip there that
  # starts a moment after the Ctrl-C does not get it, and would run to its end first.
  installing=yes
  (
    unset PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
    export PIP_USER=0 PIP_RETRIES="${PIP_RETRIES:-2}" PIP_DISABLE_PIP_VERSION_CHECK=1 TMPDIR="$venv/tmp"
    exec "$venv/bin/python" -I -c "$pip" install --no-input --progress-bar off --no-compile --no-deps --require-hashes \
      "$only" -r "$here/$lock"
  ) </dev/null >>"$log" 2>&1 &
  wait $! || fail_with_log "the packages of $lock could not be installed" \
    "needs the package index or a mirror of it (pip's own settings apply: PIP_INDEX_URL, HTTPS_PROXY, pip.conf)"
  installing=no
  rm -rf "$venv/tmp"
  # Compiled here on all CPUs, because pip uses one, and because another user of this clone may not write.
  "$venv/bin/python" -I -m compileall -q -j 0 "$venv/lib" >>"$log" 2>&1 || :
  cp "$here/requirements.lock" "$venv/requirements.lock"
  if [ "$lock" != requirements.lock ]; then cp "$here/$lock" "$venv/$lock"; fi
}

fail_with_log() { fail "$1" "$(grep -v -e '^Collecting' -e '^ *$' "$log" | tail -n 6)" "$2; all of it is in $log"; }

# Prints what a Python is good for, its rank by age, its version and its path; runs on any Python 3.
probe='
import os, sys
fit = sys.implementation.name == "cpython" and (3, int(sys.argv[1])) <= sys.version_info[:2] <= (3, int(sys.argv[2]))
state = "ready" if fit else "unfit"
try:
    import ensurepip, ssl, venv, zlib
    ensurepip.version()  # fails where the wheel of pip is packaged apart and missing
except Exception:
    state = "bare" if fit else "unfit"
path = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
print(state, sys.hexversion, "%d.%d.%d" % sys.version_info[:3], path)
'

# probe_python PROGRAM: sets `state`, `age`, `found` (the version) and `path`. Shims that do not run fail.
probe_python() {
  answer=$("$1" -I -c "$probe" "$oldest_minor" "$newest_minor" 2>/dev/null) || return 1
  read -r state age found path <<ANSWER
$answer
ANSWER
}

# Sets `python` and `version` to the oldest that can make an environment, after mending the distribution's if it may.
find_python() {
  if look_for ready; then return; fi
  if look_for bare; then
    lack="$python (Python $version) has no ensurepip, which Debian and Ubuntu ship apart"
    package=python${version%.*}-venv
    if [ "$python" = "$(readlink -f /usr/bin/python3)" ]; then package=python3-venv; fi
  elif look_for unfit; then
    fail "no suitable Python found" "pgdyno needs Python 3.$oldest_minor to 3.$newest_minor; found $version ($python)" \
      "Debian 12 and 13 and Ubuntu 24.04 bring one as python3; on Ubuntu 22.04: apt-get install python3.11-venv"
  else
    lack="no Python 3 found on PATH"
    package=python3-venv
  fi
  command -v apt-get >/dev/null || fail "no suitable Python found" "$lack" \
    "install Python 3.$oldest_minor to 3.$newest_minor with its venv and ensurepip modules"
  if [ "$consent" = yes ] && [ "$(id -u)" = 0 ]; then
    say "$lack; running apt-get update && apt-get install -y $package"
    install_packages "$package"
    if look_for ready; then return; fi
  fi
  sudo=
  yes=" (or give --yes)"
  if [ "$(id -u)" != 0 ]; then sudo='sudo ' yes=; fi
  fail "Python cannot make a virtual environment yet" "$lack" \
    "${sudo}apt-get update && ${sudo}apt-get install -y $package$yes"
}

# install_packages NAME...: with apt-get, quietly. A service that a package starts must not inherit the lock.
install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y "$@"; } 9<&- </dev/null >>"$log" 2>&1 ||
    fail_with_log "apt-get could not install $*" "try it by hand"
}

# look_for STATE: sets `python` and `version` to the oldest Python of that state, on PATH or where distributions put
# theirs. The oldest, because it is the one that ./check tries: users then run what was tested.
look_for() {
  minor=$oldest_minor
  names=
  while [ "$minor" -le "$newest_minor" ]; do
    names="$names python3.$minor"
    minor=$((minor + 1))
  done
  best=
  for name in $names python3; do
    rest=$PATH:/usr/local/bin:/usr/bin:
    while [ -n "$rest" ]; do
      folder=${rest%%:*}
      rest=${rest#*:}
      [ -x "$folder/$name" ] || continue
      probe_python "$folder/$name" || continue
      [ "$state" = "$1" ] || continue
      if [ -z "$best" ] || [ "$age" -lt "$best" ]; then best=$age version=$found python=$path; fi
    done
  done
  [ -n "$best" ]
}

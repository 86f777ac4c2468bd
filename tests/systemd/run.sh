#!/bin/bash
# The package under a real systemd: install, socket activation, attention, reload, drain, crash, hang, two instances,
# upgrade under load, removal.
#
#     tests/systemd/run.sh PACKAGE.deb NEXT.deb WORKER
#
# PACKAGE and NEXT are two versions of the package, WORKER a program that runs attention through a daemon and checks every
# result against float64 (see worker_* below). Where no container can boot it says why and exits 77, which is not a pass.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/container.sh"
package=$1 next=$2 worker=$3
trees=${HIPPIHX_TREES:-$here/../../target/systemd}

why=$(container_obstacle)
if [ -n "$why" ]; then
    echo "NOT RUN: no container with systemd can boot here: $why"
    exit 77
fi

passed=0 failed=0
check() { # check NAME COMMAND…
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1)); echo "ok    $name"
    else
        failed=$((failed + 1)); echo "FAIL  $name"
        inside journalctl --no-pager -n 15 -u 'hippihxd@*' 2>/dev/null | sed 's/^/      /'
    fi
}
# until_true TRIES COMMAND…: asks again until it holds; every try asks the real thing.
until_true() {
    local tries=$1
    shift
    for _ in $(seq "$tries"); do
        "$@" && return
        read -rt 0.1 <> <(:) || true
    done
    return 1
}
is() { [ "$(inside systemctl show -P "$2" "$1")" = "$3" ]; }
main_pid() { inside systemctl show -P MainPID "hippihxd@$1.service"; }
ctl() { local instance=$1; shift; inside hippihxctl --socket "/run/hippihx/$instance/hippihx.sock" "$@"; }
sessions_at_least() { [ "$(ctl "$1" --json stats | grep -o '"session":' | wc -l)" -ge "$2" ]; }
field() { ctl "$1" --json status | tr -d ' \n' | grep -oE "\"$2\":\"?[^,\"}]*" | head -1 | sed 's/.*://; s/"//g'; }
# The worker as an ordinary user outside the daemon's sandbox, in the group that may open the sockets.
attend() { local instance=$1; shift; inside setpriv --reuid=user --regid=user --groups=hippihx-clients,user /usr/local/bin/worker --socket "/run/hippihx/$instance/hippihx.sock" "$@"; }

mkdir -p "$trees"
container_tree "$trees/tree" || { echo "FAIL  debootstrap"; exit 1; }
install -m 755 "$worker" "$trees/tree/usr/local/bin/worker"
install -m 644 "$package" "$trees/tree/root/hippihx.deb"
install -m 644 "$next" "$trees/tree/root/next.deb"
container_boot "$trees/tree" || { echo "FAIL  boot"; exit 1; }
trap container_stop EXIT

inside useradd --create-home user
check "the package installs" inside dpkg -i /root/hippihx.deb
inside usermod -aG hippihx-clients user

# ---- start by socket activation -------------------------------------------------------------------------------------
check "nothing runs before it is asked for" is hippihxd@fake.service ActiveState inactive
check "the socket unit starts" inside systemctl start hippihxd@fake.socket
check "the sockets have their mode from the unit" \
    test "$(inside stat -c '%a %U %G' /run/hippihx/fake/hippihx.sock)" = "660 hippihx hippihx-clients"
check "a stranger may not connect" sh -c "! nsenter -t $LEADER -m -p -u -i -n -C -r -w/ setpriv --reuid=nobody --regid=nogroup \
    --clear-groups /usr/bin/hippihxctl --socket /run/hippihx/fake/hippihx.sock status >/dev/null 2>&1"
check "the first client starts the daemon, and attention is right" attend fake --steps 8
check "the service says it is ready" is hippihxd@fake.service ActiveState active
check "the status text names the slot" sh -c "nsenter -t $LEADER -m -p -u -i -n -C -r -w/ systemctl show -P StatusText hippihxd@fake.service | grep -q gfx1030"

# ---- reload ---------------------------------------------------------------------------------------------------------
# A session works on while the object is swapped under it: the worker binds again and every step is checked.
before=$(field fake generation)
attend fake --steps 4000 >"$trees/reload.log" 2>&1 &
client=$!
until_true 100 sessions_at_least fake 1
# Another content under the same name: a note at the end of the file changes the hash and nothing else.
inside sh -c 'cp /usr/lib/hippihx/kernels/hippihx_gfx1030.hsaco /root/object && printf "\0" >>/usr/lib/hippihx/kernels/hippihx_gfx1030.hsaco'
check "reload answers after the swap" inside systemctl reload hippihxd@fake.service
check "the generation is higher" test "$(field fake generation)" -gt "$before"
check "the session lived through it" kill -0 "$client"
inside sh -c 'cp /root/object /usr/lib/hippihx/kernels/hippihx_gfx1030.hsaco'
printf broken | inside sh -c 'cat >/root/broken && cp /root/broken /usr/lib/hippihx/kernels/hippihx_gfx1030.hsaco'
check "a broken object fails the reload" sh -c "! nsenter -t $LEADER -m -p -u -i -n -C -r -w/ systemctl reload hippihxd@fake.service 2>/dev/null"
check "and the old one serves on" attend fake --steps 4
inside cp /root/object /usr/lib/hippihx/kernels/hippihx_gfx1030.hsaco

# ---- upgrade under load ---------------------------------------------------------------------------------------------
attend fake --steps 4000 >"$trees/second.log" 2>&1 &
second=$!
until_true 100 sessions_at_least fake 2
old=$(main_pid fake)
check "the next version installs under two clients" inside dpkg -i /root/next.deb
check "another process serves" sh -c "[ '$(main_pid fake)' != '$old' ]"
check "the first client finished with every result right" wait "$client"
check "the second client finished with every result right" wait "$second"
echo "      the first client saw:  $(grep -E 'pause|retried' "$trees/reload.log" | tr '\n' ' ')"
echo "      the second client saw: $(grep -E 'pause|retried' "$trees/second.log" | tr '\n' ' ')"

# ---- crash ----------------------------------------------------------------------------------------------------------
old=$(main_pid fake)
inside kill -KILL "$old"
restarted() { local now; now=$(main_pid fake); [ "$now" != 0 ] && [ "$now" != "$old" ] && is hippihxd@fake.service ActiveState active; }
check "SIGKILL is followed by a restart" until_true 100 restarted
check "and the next client is served" attend fake --steps 4

# ---- two instances --------------------------------------------------------------------------------------------------
inside mkdir -p /run/systemd/system/hippihxd@two.service.d
inside cp /usr/lib/systemd/system/hippihxd@fake.service.d/fake.conf /run/systemd/system/hippihxd@two.service.d/
inside systemctl daemon-reload
inside systemctl start hippihxd@two.socket
check "a second instance serves beside the first" attend two --steps 4
inside systemctl stop hippihxd@fake.socket hippihxd@fake.service
check "stopping one leaves the other" attend two --steps 4
check "the stopped one's socket is gone" inside test ! -e /run/hippihx/fake/hippihx.sock

# ---- stop drains ----------------------------------------------------------------------------------------------------
inside systemctl start hippihxd@fake.socket
attend fake --steps 4000 >"$trees/drain.log" 2>&1 &
client=$!
until_true 100 sessions_at_least fake 1
check "stop ends in success, so the drain was clean" inside systemctl stop hippihxd@fake.socket hippihxd@fake.service
check "the unit did not fail" is hippihxd@fake.service Result success
kill "$client" 2>/dev/null
wait "$client" 2>/dev/null

# ---- a hung device trips the watchdog -------------------------------------------------------------------------------
inside mkdir -p /run/systemd/system/hippihxd@hung.service.d
inside sh -c 'sed "s/fake:gfx1030/fake:gfx1030,hang_nth=3/" /usr/lib/systemd/system/hippihxd@fake.service.d/fake.conf \
    >/run/systemd/system/hippihxd@hung.service.d/fake.conf
    printf "WatchdogSec=2\n" >>/run/systemd/system/hippihxd@hung.service.d/fake.conf'
inside systemctl daemon-reload
inside systemctl start hippihxd@hung.socket
attend hung --steps 8 >"$trees/hung.log" 2>&1 &
client=$!
hung_restarted() { [ "$(inside systemctl show -P NRestarts hippihxd@hung.service)" -ge 1 ]; }
check "a hung device makes systemd restart the unit" until_true 600 hung_restarted
kill "$client" 2>/dev/null
wait "$client" 2>/dev/null
inside systemctl stop hippihxd@hung.socket hippihxd@hung.service

# ---- start-up refusals are not retried ------------------------------------------------------------------------------
inside mkdir -p /run/systemd/system/hippihxd@refused.service.d
inside sh -c 'cp /usr/lib/systemd/system/hippihxd@fake.service.d/fake.conf /run/systemd/system/hippihxd@refused.service.d/
    printf "[Service]\nEnvironment=HSA_OVERRIDE_GFX_VERSION=10.3.0\n" >/run/systemd/system/hippihxd@refused.service.d/override.conf'
inside systemctl daemon-reload
inside systemctl start hippihxd@refused.service 2>/dev/null
check "a start-up refusal fails the unit" is hippihxd@refused.service ActiveState failed
check "and is not tried again" is hippihxd@refused.service NRestarts 0
check "the journal names the variable" sh -c "nsenter -t $LEADER -m -p -u -i -n -C -r -w/ journalctl --no-pager -u hippihxd@refused.service | grep -q HSA_OVERRIDE_GFX_VERSION"
inside systemctl stop hippihxd@refused.socket

# ---- removal --------------------------------------------------------------------------------------------------------
check "the package is purged" inside dpkg --purge hippihx
check "no process is left" sh -c "! nsenter -t $LEADER -m -p -u -i -n -C -r -w/ pgrep hippihxd"
check "no unit is left" sh -c "[ -z \"\$(nsenter -t $LEADER -m -p -u -i -n -C -r -w/ systemctl list-units --all --no-legend 'hippihxd@*' | grep -v not-found)\" ]"
check "no file is left" sh -c "[ -z \"\$(nsenter -t $LEADER -m -p -u -i -n -C -r -w/ find /usr /etc /run/hippihx /var/lib -path /usr/local -prune -o -name '*hippihx*' -not -path '/var/lib/dpkg/*' -print 2>/dev/null)\" ]"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

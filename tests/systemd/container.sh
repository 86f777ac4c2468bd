# A Debian container with a real systemd, for run.sh: made once, booted without keeping changes, driven from outside.
# Sourced, not run. Needs root.

# Says why the container cannot be had here, or nothing.
container_obstacle() {
    [ "$(id -u)" = 0 ] || { echo "not root"; return; }
    for tool in systemd-nspawn debootstrap nsenter setsid; do
        command -v $tool >/dev/null || { echo "$tool is not installed (Debian: systemd-container, debootstrap, util-linux)"; return; }
    done
    [ -d /sys/fs/cgroup ] || { echo "no cgroup filesystem"; return; }
}

# container_tree FOLDER: a minimal Debian with systemd in FOLDER; kept between runs.
container_tree() {
    [ -e "$1/.complete" ] && return
    rm -rf "$1"
    mkdir -p "$1"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps bookworm "$1" >"$1.log" 2>&1 \
        || { tail -5 "$1.log"; return 1; }
    touch "$1/.complete"
}

# container_boot TREE: boots it and sets LEADER, the container's init as seen from here.
container_boot() {
    local name="hippihx-test-$$"
    # Device rules are enforced only with these two settings.
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_SECCOMP=0 setsid systemd-nspawn -q -D "$1" --boot --register=no --keep-unit \
        --machine="$name" --private-network --console=pipe --kill-signal=SIGRTMIN+3 --capability=all --volatile=overlay \
        </dev/null >"$1.console" 2>&1 &
    NSPAWN=$!
    LEADER=
    # Bounded by tries, each of which waits for a real answer of the container.
    for _ in $(seq 200); do
        LEADER=$(pgrep -P "$(pgrep -f "machine=$name" | head -1)" 2>/dev/null | head -1)
        [ -n "$LEADER" ] && inside systemctl is-system-running --wait 2>/dev/null | grep -Eq 'running|degraded' && return
        kill -0 "$NSPAWN" 2>/dev/null || { tail -5 "$1.console"; return 1; }
        read -rt 0.1 <> <(:) || true
    done
    return 1
}

# inside COMMAND…: runs it in the container, as the container's root.
inside() {
    nsenter -t "$LEADER" -m -p -u -i -n -C -r -w/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

container_stop() {
    [ -n "${LEADER:-}" ] && inside systemctl poweroff 2>/dev/null
    wait "${NSPAWN:-}" 2>/dev/null || true
}

#!/bin/sh
# Installs docwharf from the folder of this file; uses no network.
#
#   ./install.sh [--prefix DIR] [--no-systemd]     as root; the prefix is /usr/local
#   ./install.sh --uninstall [--prefix DIR]        removes what it has installed
#
# With units, it makes the inbox /var/spool/docwharf, and the group docwharf-inbox, whose members put bundles into it.
#
# A second run, or one from the folder of a later version, replaces the program and the units and restarts a service
# that runs. It never touches /etc/docwharf, the store, or drop-ins (/etc/systemd/system/docwharf.service.d).
set -eu
umask 022
here=$(CDPATH='' cd "$(dirname "$0")" && pwd -P)

fail() { echo "install.sh: $*" >&2; exit 1; }
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }

prefix=/usr/local units=/etc/systemd/system uninstall='' systemd=1
while [ $# -gt 0 ]; do
    case $1 in
        --prefix)
            case ${2-} in /*) prefix=${2%/} ;; *) fail "--prefix needs an absolute directory" ;; esac
            shift ;;
        --no-systemd) systemd='' ;;
        --uninstall) uninstall=1 ;;
        *) usage ;;
    esac
    shift
done
case $prefix in *[!A-Za-z0-9/._+-]*) fail "$prefix: choose a directory without spaces and special characters" ;; esac

# Whether systemd is the init system here; files of units can be installed without it, as into an image.
is_booted() { [ -n "$systemd" ] && [ -d /run/systemd/system ]; }
running_services() {
    systemctl list-units --plain --no-legend --state=active docwharf.service 'docwharf@*.service' | cut -d' ' -f1
}

# Replaced by rename: a program that runs cannot be written, and no reader sees half of one.
put() { # put MODE FILE TARGET
    mkdir -p "$(dirname "$3")"
    cp "$2" "$3.new"
    chmod "$1" "$3.new"
    mv -f "$3.new" "$3"
}

man=$prefix/share/man/man1
bash=$prefix/share/bash-completion/completions/docwharf
zsh=$prefix/share/zsh/site-functions/_docwharf
fish=$prefix/share/fish/vendor_completions.d/docwharf.fish
documents=$prefix/share/doc/docwharf
inbox=/var/spool/docwharf
inbox_group=docwharf-inbox

# Whether a package of the distribution is installed, too: its service continues with the program of that package.
is_packaged() { [ -e /usr/lib/systemd/system/docwharf.service ] || [ -e /lib/systemd/system/docwharf.service ]; }

disable_services() {
    # The socket first: otherwise a connection would start the service again.
    for unit in docwharf.socket docwharf.service $(running_services); do
        systemctl disable --now --quiet "$unit" 2>/dev/null || true
    done
    for link in "$units"/*.wants/docwharf@*.service; do
        if [ -L "$link" ]; then systemctl disable --now --quiet "${link##*/}" 2>/dev/null || true; fi
    done
}

remove_all() {
    if is_booted && ! is_packaged; then disable_services; fi
    if [ -n "$systemd" ]; then
        rm -f "$units/docwharf.service" "$units/docwharf.socket" "$units/docwharf@.service"
        if is_booted; then systemctl daemon-reload; fi
    fi
    if is_booted && is_packaged; then
        systemctl try-restart docwharf.service 'docwharf@*.service' ||
            echo "install.sh: warning: the packaged service does not start again: journalctl -u docwharf" >&2
    fi
    rm -f "$prefix/bin/docwharf" "$man/docwharf.1" "$man"/docwharf-*.1 "$bash" "$zsh" "$fish"
    rm -rf "$documents"
    echo "docwharf is removed; /etc/docwharf, the store in /var/lib and the inbox in /var/spool stay"
}

# Makes the inbox and its group, unless there is one, such as that of a package. The dynamic user of the service cannot
# own a folder, so the group gives access.
make_inbox() {
    [ ! -e "$inbox" ] || return 0
    getent group "$inbox_group" >/dev/null || groupadd --system "$inbox_group" || return 0
    mkdir -p "$inbox"
    chgrp "$inbox_group" "$inbox"
    chmod 2775 "$inbox"
}

# The unit with the path of the program and, if there is one, access to the inbox by its group.
adapted_unit() { # adapted_unit UNIT
    set -- "$1" "s|/usr/local/bin/docwharf|$prefix/bin/docwharf|g"
    if [ "$1" = docwharf.service ] && getent group "$inbox_group" >/dev/null; then
        access="ReadWritePaths=-$inbox\\nSupplementaryGroups=$inbox_group"
        set -- "$1" "$2; s|^ConfigurationDirectory=docwharf\$|&\\n$access|"
    fi
    sed "$2" "$here/systemd/$1"
}

install_all() {
    # First of all: the package may be for another architecture.
    version=$("$here/docwharf" --version) || fail "the program of this package does not run here ($(uname -sm))"
    for unit in docwharf.service docwharf.socket docwharf@.service; do
        if [ -e "/lib/systemd/system/$unit" ] && [ -n "$systemd" ]; then
            echo "install.sh: warning: a package has installed /lib/systemd/system/$unit; this one takes precedence" >&2
            break
        fi
    done
    put 755 "$here/docwharf" "$prefix/bin/docwharf"
    for page in "$here"/man/man1/*.1; do put 644 "$page" "$man/$(basename "$page")"; done
    put 644 "$here/completions/docwharf.bash" "$bash"
    put 644 "$here/completions/_docwharf" "$zsh"
    put 644 "$here/completions/docwharf.fish" "$fish"
    for file in LICENSE-MIT LICENSE-APACHE LICENSES-THIRD-PARTY CHANGELOG.md; do
        put 644 "$here/$file" "$documents/$file"
    done
    if [ -n "$systemd" ]; then
        make_inbox
        for unit in docwharf.service docwharf.socket docwharf@.service; do
            adapted_unit "$unit" >"$units_part/$unit"
            put 644 "$units_part/$unit" "$units/$unit"
        done
    fi
    echo "$version is installed: $prefix/bin/docwharf"
    if ! is_booted; then return; fi
    systemctl daemon-reload
    running=$(running_services)
    for unit in $running; do
        systemctl restart "$unit" || fail "$unit does not start again: journalctl -u $unit"
        echo "$unit is restarted"
    done
    if [ -z "$running" ]; then
        cat <<TEXT
Next steps:
  mkdir -p /etc/docwharf
  $prefix/bin/docwharf config init /etc/docwharf/config.toml --for vm   # unless there is one; then edit it
  $prefix/bin/docwharf doctor                                           # reports faults and remedies
  systemctl enable --now docwharf
TEXT
    fi
}

[ -w "$(dirname "$prefix")" ] || [ -w "$prefix" ] || fail "cannot write to $prefix: run it as root, or choose --prefix"
if [ -n "$systemd" ] && [ ! -w /etc ]; then fail "cannot write to $units: run it as root, or with --no-systemd"; fi
if [ -n "$uninstall" ]; then remove_all; exit 0; fi
units_part=$(mktemp -d)
trap 'rm -rf "$units_part"' EXIT
install_all

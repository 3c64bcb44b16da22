#!/usr/bin/env bash
# Runs a command in a fresh clone of HEAD on a bare Debian 12 that lives in a folder.
#
# usage: fresh_machine.sh [--keep] [COMMAND...]      (default: ./dev demo)
#
# The machine is debootstrap's minimal Debian: no compiler, no git, no certificates. Nothing of this
# machine is shared with it but the network and what reaching the package registries takes here:
# apt's sources (SHOAL_DEBIAN_MIRROR names another mirror), certificates, pip's configuration, the
# proxies' environment. It is deleted at the end (--keep leaves it and says where). Needs root and
# debootstrap. The bare tree is kept for a week as a tarball under ~/.cache/shoal.
set -euo pipefail

readonly SUITE=bookworm
readonly CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/shoal/fresh
readonly HOST_CA=/etc/ssl/certs/ca-certificates.crt
readonly MACHINE_CA=/etc/fresh-machine-ca.crt
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly REPO

keep=""
root=""

say() { printf 'fresh_machine: %s\n' "$*" >&2; }

unmount_all() {
  local mount
  # Deepest first; lazily where a process still sits in one.
  awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r mount; do
      umount "$mount" 2>/dev/null || umount -l "$mount"
    done
}

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  [[ -n $root && -d $root ]] || exit "$code"
  unmount_all
  if grep -q " $root/" /proc/mounts; then
    say "still mounted under $root, left as it is"
  elif [[ -n $keep ]]; then
    say "left in $root"
  else
    rm -rf --one-file-system "$root"
  fi
  exit "$code"
}

# The mirror that this machine's own apt uses; empty, and so debootstrap's choice, where it has none
# of the release.
mirror() {
  if [[ -n ${SHOAL_DEBIAN_MIRROR:-} ]]; then
    printf '%s' "$SHOAL_DEBIAN_MIRROR"
  elif command -v apt-get >/dev/null; then
    # shellcheck disable=SC2016  # apt-get fills these in
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
      awk -v suite="$SUITE" '$1 == suite && !found { printf "%s", $2; found = 1 }'
  fi
}

bare_tree() {
  local tarball=$CACHE/$SUITE.tar
  mkdir -p "$CACHE"
  if [[ -z $(find "$tarball" -mtime -7 2>/dev/null) ]]; then
    say "making a bare $SUITE (once a week)"
    local from
    from=$(mirror)
    debootstrap --variant=minbase "$SUITE" "$root" ${from:+"$from"} \
      >"$CACHE/debootstrap.log" 2>&1 || {
      tail -n 20 "$CACHE/debootstrap.log" >&2
      return 1
    }
    tar -C "$root" --one-file-system -cf "$tarball.part" . && mv "$tarball.part" "$tarball"
  else
    tar -C "$root" -xpf "$tarball"
  fi
}

# What it takes to reach the registries from here; each only where this machine has it.
copy_network_configuration() {
  local path
  # Our sources only where they are of the same release.
  if grep -qs "VERSION_ID=\"12\"" /etc/os-release; then
    for path in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
      if [[ -e $path ]]; then
        rm -f "$root/etc/apt/sources.list"
        cp "$path" "$root$path"
      fi
    done
  fi
  for path in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
    if [[ -e $path ]]; then cp -L "$path" "$root$path"; fi
  done
  # apt's dates and proxies, but not hooks into programs that are not there.
  for path in /etc/apt/apt.conf.d/*; do
    if [[ -f $path ]] && grep -qsE 'Acquire::' "$path" && ! grep -qsE 'Invoke' "$path"; then
      cp "$path" "$root$path"
    fi
  done
  if compgen -G '/usr/local/share/ca-certificates/*' >/dev/null; then
    cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
  fi
  if [[ -f $HOST_CA ]]; then cp -L "$HOST_CA" "$root$MACHINE_CA"; fi
}

# The environment of the machine: proxies as here, this machine's certificates, nothing else.
environment() {
  local name
  printf '%s\n' HOME=/root USER=root LOGNAME=root TERM="${TERM:-dumb}" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY FUZZ_SECONDS CI; do
    if [[ -n ${!name:-} ]]; then printf '%s=%s\n' "$name" "${!name}"; fi
  done
  if [[ -f $root$MACHINE_CA ]]; then
    for name in SSL_CERT_FILE GIT_SSL_CAINFO CURL_CA_BUNDLE PIP_CERT CARGO_HTTP_CAINFO \
      NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE; do
      printf '%s=%s\n' "$name" "$MACHINE_CA"
    done
  fi
}

mount_system() {
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  local device
  for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}

main() {
  if [[ ${1:-} == --keep ]]; then
    keep=yes
    shift
  fi
  [[ $# -gt 0 ]] || set -- ./dev demo
  if [[ $(id -u) -ne 0 ]] || ! command -v debootstrap >/dev/null; then
    say "needs root and debootstrap (apt-get install debootstrap)"
    exit 2
  fi
  root=$(mktemp -d "${TMPDIR:-/tmp}/shoal-fresh.XXXXXX")
  chmod 755 "$root"
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  bare_tree
  copy_network_configuration
  git clone --quiet --no-hardlinks "$REPO" "$root/root/shoal"
  mount_system
  local variables
  mapfile -t variables < <(environment)
  say "running in a clone of $(git -C "$REPO" rev-parse --short HEAD) on a bare $SUITE: $*"
  # shellcheck disable=SC2016  # "$@" is for the shell inside
  chroot "$root" /usr/bin/env -i "${variables[@]}" \
    /bin/bash -c 'cd /root/shoal && "$@"' bash "$@"
}

main "$@"

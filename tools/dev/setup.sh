# shellcheck shell=bash
# Set-up by the system's package manager: sourced by ./dev.
#
# setup_groups GROUP... installs the packages of these groups that are not there yet. Where nothing
# is missing it takes a tenth of a second and prints nothing.

declare -rA PACKAGES=(
  [build]="clang-19 lld-19 cmake ninja-build ccache git ca-certificates python3 python3-pip gcc g++
    libc6-dev pkg-config libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libgtest-dev
    libgmock-dev libbenchmark-dev libarchive-dev libssl-dev libedit-dev libboost1.81-dev
    prometheus-cpp-dev libibverbs-dev libucx-dev"
  [check]="clang-tidy-19 clang-format-19"
  [test]="libclang-rt-19-dev llvm-19 npm dpkg-dev file curl openssl python3-numpy qemu-user
    qemu-system-x86 iproute2 ibverbs-providers libucx0 libc6-dev-arm64-cross
    libgcc-12-dev-arm64-cross libstdc++-12-dev-arm64-cross googletest"
)
readonly CARGO_VERSION_MIN=1.85

# missing_packages PACKAGE...: those that are not installed, one a line.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p') || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

cargo_is_recent() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d' ' -f2) && [[ -n $version ]] &&
    version_at_least "$version" "$CARGO_VERSION_MIN"
}

# The packages that bring a recent cargo: the system's own, else Debian's toolchain for browsers.
cargo_packages() {
  local candidate
  candidate=$(LC_ALL=C apt-cache policy cargo | sed -n 's/^ *Candidate: //p')
  if [[ -n $candidate && $candidate != "(none)" ]] &&
    version_at_least "$candidate" "$CARGO_VERSION_MIN"; then
    echo cargo rustc
  elif apt-cache show cargo-web >/dev/null 2>&1; then
    echo cargo-web rustc-web
  else
    echo "dev: no package here brings cargo $CARGO_VERSION_MIN or newer:" \
      "install Rust by hand, then run this again" >&2
    return 1
  fi
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "dev: not root, and no sudo here; run as root: $*" >&2
    return 1
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"; }

# A tool counts as there when it is on the path, wherever it came from (npm of another source).
drop_provided() {
  local package
  for package in "$@"; do
    case $package in
      npm) command -v npm >/dev/null || echo npm ;;
      *) echo "$package" ;;
    esac
  done
}

setup_groups() {
  local group wanted=() missing=() cargo=()
  for group in "$@"; do
    # shellcheck disable=SC2206  # the list is split on purpose
    wanted+=(${PACKAGES[$group]})
  done
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "dev: set-up knows Debian 12 and its relatives; elsewhere install by hand what stands" \
      "for: ${wanted[*]}, cargo >= $CARGO_VERSION_MIN; then set SHOAL_NO_SETUP=1" >&2
    [[ -n ${SHOAL_NO_SETUP:-} ]] && return 0
    return 1
  fi
  [[ -z ${SHOAL_NO_SETUP:-} ]] || return 0
  mapfile -t wanted < <(drop_provided "${wanted[@]}")
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if [[ ${#missing[@]} -eq 0 ]] && cargo_is_recent; then
    return 0
  fi
  echo "dev: asking for the newest package lists" >&2
  apt_get update >&2
  if ! cargo_is_recent; then
    # shellcheck disable=SC2207  # package names have no spaces
    cargo=($(cargo_packages))
  fi
  echo "dev: installing ${missing[*]} ${cargo[*]}" >&2
  apt_get install --no-install-recommends "${missing[@]}" "${cargo[@]}" >&2
  cargo_is_recent || {
    echo "dev: cargo is older than $CARGO_VERSION_MIN: $(command -v cargo)" >&2
    return 1
  }
}

#!/bin/sh
# From a machine with nothing on it to a result, in one command:
#
#   sh cmake/setup.sh demo    builds and runs the router example
#   sh cmake/setup.sh test    builds everything and runs all tests
#
# On Debian and Ubuntu it installs what is missing (as root or with sudo). Where nothing is missing, and on any other
# system, it installs nothing and needs no privileges.
set -eu

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
usage() { sed -n '4,5s/^# *//p' "$0" >&2; exit 2; }

[ $# -eq 1 ] || usage
goal=$1
case $goal in
  demo) tests=OFF libraries='libeigen3-dev libcli11-dev libfmt-dev nlohmann-json3-dev' ;;
  test) tests=ON libraries='libeigen3-dev libcli11-dev libfmt-dev nlohmann-json3-dev catch2' ;;
  *) usage ;;
esac

cd "$(dirname "$0")/.."
mkdir -p build 2>/dev/null && [ -w build ] || fail "cannot write to $(pwd)/build"
log=$(pwd)/build/setup.log
: >"$log"

has() { command -v "$1" >/dev/null 2>&1; }

# The tools that are missing, by the names of Debian's packages.
missing_tools() {
  has "${CXX:-c++}" || echo g++
  has cmake || echo cmake
  has make || [ -n "${CMAKE_GENERATOR:-}" ] || echo make
}

cmake_is_old() {
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "${version%%.*}" -lt 4 ] && { minor=${version#*.}; [ "${version%%.*}" -lt 3 ] || [ "${minor%%.*}" -lt 25 ]; }
}

# Configuring is the test for the libraries: it also finds those that no package manager knows of.
configure() {
  [ -z "$(missing_tools)" ] &&
    cmake --preset release -D EVENKEEL_BUILD_TESTS=$tests -D EVENKEEL_BUILD_BENCH=OFF >>"$log" 2>&1
}

install_packages() {
  missing=$(missing_tools)
  for package in $libraries; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
      *' installed') ;;
      *) missing="$missing $package" ;;
    esac
  done
  missing=$(echo $missing)  # on one line
  [ -n "$missing" ] || return 0

  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    has sudo || fail "needs root or sudo to install: $missing"
    as_root=sudo
  fi
  say "installing $missing"
  apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q"
  $apt update >>"$log" 2>&1 </dev/null || fail "apt-get update failed (no network, or no right to?), see $log"
  $apt install --no-install-recommends $missing >>"$log" 2>&1 </dev/null ||
    fail "apt-get could not install $missing (no network?), see $log"
}

name_packages() {
  cat >&2 <<'TABLE'
setup: this system's packages have to be installed by hand:
  Fedora     dnf install gcc-c++ cmake make eigen3-devel cli11-devel fmt-devel json-devel catch-devel
  Arch       pacman -S gcc cmake make eigen cli11 fmt nlohmann-json catch2
  Alpine     apk add g++ cmake make eigen-dev cli11-dev fmt-dev nlohmann-json catch2-3
  Homebrew   brew install cmake eigen cli11 fmt nlohmann-json catch2
The last one of each line is only for the tests. Then run this command again.
TABLE
}

if ! configure; then
  if [ -f /etc/debian_version ] && has apt-get; then
    install_packages
  else
    name_packages
    [ -z "$(missing_tools)" ] || fail "missing here:" $(missing_tools)
    ! cmake_is_old || fail "needs CMake 3.25 or newer, this is $version"
    grep -A 3 'CMake Error' "$log" >&2 || tail -n 20 "$log" >&2
    fail "the project could not be configured, see $log"
  fi
  ! cmake_is_old || fail "needs CMake 3.25 or newer, this is $version"
  configure || { tail -n 20 "$log" >&2; fail "the project could not be configured, see $log"; }
fi

jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
if [ "$goal" = demo ]; then
  say "building the router example"
  cmake --build --preset release --target router -j "$jobs" >>"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "the build failed, see $log"; }
  exec build/release/examples/router </dev/null
fi
cmake --build --preset release -j "$jobs"
exec ctest --preset release

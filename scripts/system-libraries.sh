#!/bin/sh
# Makes sure that the system libraries of Qt and OpenGL, and Python's venv, are there.
# Installs them where it may (as root, on Debian or Ubuntu), else says what to install.
set -eu

packages="python3-venv xvfb xauth libgl1 libegl1 libgl1-mesa-dri libdbus-1-3 libfontconfig1
libglib2.0-0 libgomp1 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 libxcb-image0
libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-sync1 libxcb-xfixes0
libxcb-xinerama0 libxcb-xkb1"

command -v dpkg-query >/dev/null 2>&1 || exit 0 # not Debian: Qt's wheels bring most of it

# a Python that was not installed by apt has its own venv
if ${PYTHON:-python3} -c "import ensurepip, venv" 2>/dev/null; then
    packages=$(echo "$packages" | sed 's/python3-venv//')
fi

missing=""
for package in $packages; do
    # newer releases rename libraries (libglib2.0-0t64) but still provide the old name
    dpkg-query -W -f '${Status} ${Provides}\n' "$package" "${package}t64" 2>/dev/null |
        grep -q "^install ok installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # shellcheck disable=SC2086
    apt-get install -q -y --no-install-recommends $missing
else
    echo "Some system libraries are missing. Install them, then run make again:" >&2
    echo "    sudo apt-get install$missing" >&2
    exit 1
fi

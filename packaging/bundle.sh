#!/usr/bin/env bash
# bundle.sh WHEEL: put the program in one folder, dist/hushpore, with napari, Qt and PyTorch for the
# CPU; packed as .tar.xz and .deb (Linux), .zip (Windows, macOS). The environment of .venv is not
# used: what is bundled is what a user would install. PIP_CONSTRAINT, if set, names the pins.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
version=$(basename "$wheel" | cut -d- -f2)
${PYTHON:-python3} -m venv build/bundle
bin=build/bundle/bin
[ -d build/bundle/Scripts ] && bin=build/bundle/Scripts  # Windows
$bin/python -m pip install --quiet --upgrade "pip>=26.2"
$bin/python -m pip install --quiet "${wheel}[all,zarr]" pyinstaller
$bin/python -m PyInstaller --noconfirm --log-level WARN --distpath dist --workpath build/pyinstaller packaging/hushpore.spec
if [ "$(uname -s)" = Linux ]; then
    # symbols for debuggers are a tenth of it; patched libraries (numpy.libs, PyQt6) would not survive
    (cd dist/hushpore/_internal
    find torch llvmlite numcodecs imagecodecs rapidfuzz libpython* -name "*.so*" -exec strip --strip-unneeded {} +)
fi
du -sm dist/hushpore
case $(uname -s) in
Linux)
    XZ_OPT=-T0 tar --create --xz --file "dist/hushpore-$version-linux.tar.xz" --directory dist hushpore
    root=build/deb
    rm -rf $root
    mkdir -p $root/DEBIAN $root/opt $root/usr/bin $root/usr/share/applications $root/usr/share/pixmaps
    cp -a dist/hushpore $root/opt/
    ln -s /opt/hushpore/hushpore $root/usr/bin/hushpore
    cp src/hushpore/icon.png $root/usr/share/pixmaps/hushpore.png
    cp packaging/hushpore.desktop $root/usr/share/applications/
    sed "s/VERSION/$version/; s/SIZE/$(du -sk dist/hushpore | cut -f1)/" packaging/control > $root/DEBIAN/control
    dpkg-deb --root-owner-group -Zxz --build $root "dist/hushpore_${version}_amd64.deb" ;;
Darwin) ditto -c -k --keepParent dist/hushpore.app "dist/hushpore-$version-macos.zip" ;;
*) (cd dist && 7z a -bd "hushpore-$version-windows.zip" hushpore > /dev/null) ;;
esac

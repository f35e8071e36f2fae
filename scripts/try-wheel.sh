#!/usr/bin/env bash
# try-wheel.sh WHEEL [EXTRA]: install a wheel in an empty environment, away from the repository, and use
# it as a stranger would. Without EXTRA there is no PyTorch: pores are segmented, and *denoise* says
# what to install. EXTRA "all" brings napari: the plugin is looked up and a widget opened.
# PIP_CONSTRAINT, if set, names the pins.
set -euo pipefail
wheel=$(realpath "$1")
extra=${2:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
${PYTHON:-python3} -m venv env
bin=env/bin
[ -d env/Scripts ] && bin=env/Scripts  # Windows
start=$SECONDS
$bin/python -m pip install --quiet --upgrade "pip>=26.2"
$bin/python -m pip install --quiet "$wheel${extra:+[$extra]}"
echo "installed in $((SECONDS - start)) s, $(du -sm env | cut -f1) MB"
$bin/hushpore --version
if [ -n "$extra" ]; then
    $bin/hushpore demo --time-budget 30 --output demo | tail -n 3
else
    $bin/python -c "import numpy as np; from hushpore.sample_data import foam_phantom
np.save('scan.npy', foam_phantom().clean.data)"
    $bin/hushpore pores scan.npy -o demo | tail -n 3
    $bin/hushpore denoise scan.npy -o denoised.tif 2>&1 | grep -F "hushpore[denoise]"
fi
rows=$(find demo -name pores.csv -exec tail -n +2 {} + | wc -l)
echo "pores.csv: $rows pores"
[ "$rows" -gt 100 ]  # too short a training finds none
if [ "$extra" = all ]; then
    $bin/python -m npe2 list | grep hushpore
    QT_QPA_PLATFORM=offscreen $bin/python - <<'PYTHON'
from napari.components import ViewerModel
from qtpy.QtWidgets import QApplication

app = QApplication([])
from npe2 import PluginManager

manager = PluginManager.instance()
manager.discover()
manager.activate("hushpore")
widget = manager.commands.get("hushpore.pores")(ViewerModel())
print("opened", type(widget).__name__)
PYTHON
fi

#!/usr/bin/env bash
# try-wheel.sh WHEEL [EXTRA]: install a wheel in an empty environment, away from the repository, and use
# it as a stranger would. EXTRA "all" brings napari: the plugin is looked up and a widget opened.
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
$bin/hushpore demo --time-budget 30 --output demo | tail -n 3
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

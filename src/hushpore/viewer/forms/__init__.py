"""Widgets for settings: fields, forms, and the choice of layer, model, device and preset."""

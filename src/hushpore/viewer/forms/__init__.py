"""Settings as widgets: fields, forms, and the choices of layer, model, device and preset."""

"""Flow through the network of pores and throats: breakthrough, drainage, permeability."""

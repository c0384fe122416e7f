"""All that alters somebody's machine or server: settings, kernel, files, and the journal that undoes them."""

"""Everything that alters the machine or the user's server: settings, kernel, files, packages, and the journal to undo it."""

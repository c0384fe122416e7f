"""Everything that alters the machine or a server of the user's: settings, kernel, files, packages, and the journal to undo it."""

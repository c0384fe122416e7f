"""What commands do with records that exist: find, list, compare, export, publish them, and show their history."""

SELECT 1;
SELECT * FROM no_such_table
  WHERE id = 1;

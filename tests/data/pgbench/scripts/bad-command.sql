SELECT 1;
\frobnicate now

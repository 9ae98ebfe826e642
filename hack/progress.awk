# Reads "go build -v" and says now and then how many packages were compiled; prints whatever is not
# the name of a package.
/^[A-Za-z0-9._~\/-]+$/ {
  if (++n % 200 == 0) { printf "  %d packages compiled\n", n; fflush() }
  next
}
{ print }

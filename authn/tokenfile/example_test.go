package tokenfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/tenant"
)

// A record may end in ",,tenant".
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(path, []byte("a-secret-of-alice,alice,1,dev,,acme\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	tokens, err := tokenfile.Open(context.Background(), path, tokenfile.Options{
		Check: func(string, []string, tenant.ID) error { return nil }}) // package authn's hygiene, in a server
	if err != nil {
		fmt.Println(err)
		return
	}
	response, ok, err := tokens.AuthenticateToken(context.Background(), "a-secret-of-alice")
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey], ok, err)
	_, ok, err = tokens.AuthenticateToken(context.Background(), "a-guess")
	fmt.Println(ok, err)
	// Output:
	// alice [acme] true <nil>
	// false <nil>
}

package basicauth_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/tenant"
)

// A record may end in ",,tenant"; the password may be a bcrypt hash.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "passwords.csv")
	if err := os.WriteFile(path, []byte("a-secret-of-alice,alice,1,dev,,acme\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	passwords, err := basicauth.Open(path, basicauth.Options{Check: func(string, []string, tenant.ID) error { return nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api", http.NoBody)
	request.SetBasicAuth("alice", "a-secret-of-alice")
	response, ok, err := passwords.AuthenticateRequest(request)
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey], ok, err)
	// Output:
	// alice [acme] true <nil>
}

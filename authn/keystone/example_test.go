package keystone_test

import (
	"fmt"

	"github.com/kubetenant/kubetenant/authn/keystone"
)

// What has not the form of a token of Keystone's is another source's business: Keystone is not asked.
func ExampleLooksLike() {
	fmt.Println(keystone.LooksLike("0123456789abcdef0123456789abcdef"))
	fmt.Println(keystone.LooksLike("abcdef.0123456789abcdef"))
	// Output:
	// true
	// false
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package frontproxy_test

import (
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
)

// If one authority signs the certificates of the proxy and of the clients, and any name is
// allowed, every client could assert any identity. A server MUST NOT start with this
// configuration.
func ExampleCheckAuthorities() {
	issuer := authntest.NewIssuer() // for its certificate
	defer issuer.Close()
	authority := []byte(issuer.CA())
	content, err := dynamiccertificates.NewStaticCAContent("proxy", authority)
	if err != nil {
		fmt.Println(err)
		return
	}
	config := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:  content,
		AllowedClientNames: headerrequest.StaticStringSlice{},
	}
	fmt.Println(errors.Is(frontproxy.CheckAuthorities(config, authority), frontproxy.ErrSharedAuthority))
	config.AllowedClientNames = headerrequest.StaticStringSlice{"front-proxy"}
	fmt.Println(frontproxy.CheckAuthorities(config, authority))
	// Output:
	// true
	// <nil>
}

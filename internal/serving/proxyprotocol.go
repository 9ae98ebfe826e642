// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pires/go-proxyproto"
)

// BehindProxies returns a listener for connections through load balancers. Connections from their
// addresses MUST start with a PROXY protocol header, which contains the address of the client. The
// listener closes connections without it. The header has version 1 or 2
// (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt). Connections from other addresses
// cannot have a header, because it is not a TLS handshake.
func BehindProxies(l net.Listener, proxies []netip.Prefix) net.Listener {
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: headerTimeout,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			from, err := netip.ParseAddrPort(o.Upstream.String())
			isFrom := func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) }
			if err == nil && slices.ContainsFunc(proxies, isFrom) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
	}
}

var errMapped = errors.New("write IPv4 addresses in dotted form, not mapped to IPv6")

// ParsePrefixes parses addresses and CIDRs.
func ParsePrefixes(texts []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			address = address.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		if prefix.Addr().Is4In6() { // no connection's address would match
			return nil, fmt.Errorf("%s: %w", text, errMapped)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

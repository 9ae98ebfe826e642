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

// BehindProxies returns a listener for connections through load balancers. A connection from an
// address in proxies MUST start with a PROXY protocol header, which contains the address of the
// client. Otherwise, the listener closes the connection. The header has version 1 or 2
// (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt). The listener does not read
// headers from other addresses. A header from another address makes the TLS handshake fail.
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

// ParsePrefixes parses IP addresses and CIDRs. The prefix of an IP address contains only this
// address.
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
		if prefix.Addr().Is4In6() { // the prefix would match no connection, because addresses are unmapped
			return nil, fmt.Errorf("%s: %w", text, errMapped)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

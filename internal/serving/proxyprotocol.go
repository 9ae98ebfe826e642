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

// BehindProxies returns a listener whose connections from some addresses are of load balancers,
// which say by the PROXY protocol (versions 1 and 2,
// https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt) whose each is: one that does not say
// so is closed. Of what others say nothing is believed: a header of theirs is no handshake of TLS.
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

// ParsePrefixes reads addresses and CIDRs.
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
		if prefix.Addr().Is4In6() { // which no connection's address would be in
			return nil, fmt.Errorf("%s: %w", text, errMapped)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are tried: below those that systems give to outgoing connections (Linux from
// 32768, others from 49152), so that nobody takes one between two listeners.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// errNoPort says that no port was free.
var errNoPort = errors.New("the loopback address has no free port")

// reserved keeps the ports that were given out from other processes like this one, whose
// listeners may come seconds later: each is held over UDP, which nobody speaks there,
// until this process ends.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

// listenReserved listens on an address that nobody has reserved, and reserves it.
func listenReserved(address string) (net.Listener, error) {
	held, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports = append(reserved.ports, held)
	return l, nil
}

func onLoopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listenFree listens on a port of the loopback address that is free, and reserves it.
func listenFree() (net.Listener, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort) // #nosec G404 -- any will do
		if l, err := listenReserved(onLoopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, errNoPort
}

// FreeAddress returns an address for a process that cannot be handed a listener. No other gets it
// as long as this process runs.
func FreeAddress() (string, error) {
	l, err := listenFree()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

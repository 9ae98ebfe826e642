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

// The range of ports to try. It is below the ports that systems use for outgoing connections (Linux
// from 32768, others from 49152). Otherwise, such a connection could occupy a port between two
// listeners.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// errNoPort reports that no port was free.
var errNoPort = errors.New("the loopback address has no free port")

// reserved protects the assigned ports from other processes like this one, because their listeners
// may start seconds later. A UDP socket on each port, which has no other use there, holds it until
// this process ends.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

// listenReserved listens on an address that no process has reserved, and reserves it.
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

// listenFree listens on a free port of the loopback address and reserves it.
func listenFree() (net.Listener, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort) // #nosec G404 -- any port is fine
		if l, err := listenReserved(onLoopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, errNoPort
}

// FreeAddress returns an address for a process that cannot inherit a listener. No other process
// gets it while this process runs.
func FreeAddress() (string, error) {
	l, err := listenFree()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

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

// The range of ports to try. It is below the ports that operating systems use for outgoing
// connections (Linux from 32768, others from 49152). An outgoing connection can therefore not
// occupy a port while no process listens on it.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// errNoPort is the error if no free port was found.
var errNoPort = errors.New("the loopback address has no free port")

// reserved contains a UDP socket for each port that this process has assigned. The sockets
// prevent other processes that use this package from assigning the same ports, because a listener
// may start seconds later. They exist until this process ends.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

// listenReserved listens on an address and reserves its port. It returns an error if the port
// is in use or reserved.
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

// listenFree listens on a free port of the loopback address and reserves the port.
func listenFree() (net.Listener, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort) // #nosec G404 -- any port is fine
		if l, err := listenReserved(onLoopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, errNoPort
}

// FreeAddress returns a free address for a process that cannot inherit a listener. While this
// process runs, FreeAddress does not return the same address again in any process.
func FreeAddress() (string, error) {
	l, err := listenFree()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

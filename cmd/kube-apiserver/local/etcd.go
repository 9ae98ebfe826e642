// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdStart bounds the start of the embedded etcd, replay of a large log included.
const etcdStart = time.Minute

// socketDir makes the directory of the sockets, notes it in dir/etcd/sockets, and removes the one
// that a server left there that was killed. The caller holds the lock of dir.
func socketDir(dir string) (string, error) {
	note := filepath.Join(dir, "etcd", "sockets")
	if left, err := os.ReadFile(note); err == nil { // #nosec G304 -- in the operator's directory
		name := filepath.Base(string(left))
		if !strings.HasPrefix(name, socketPrefix) {
			return "", fmt.Errorf("%s: this file was not written by kubetenant-local", note)
		}
		path := filepath.Join(os.TempDir(), name)
		if err := os.RemoveAll(path); err != nil { // #nosec G703 -- the last part of a path, of our own form
			return "", err
		}
	}
	sockets, err := os.MkdirTemp("", socketPrefix)
	if err != nil {
		return "", err
	}
	return sockets, os.WriteFile(note, []byte(sockets), 0o600)
}

// socketPrefix begins the names of the sockets' directories.
const socketPrefix = "kubetenant-"

// startEtcd runs an etcd of one member that keeps its data in dir and listens on unix sockets in
// socketDir, which must be a short path: a socket's is limited to 108 bytes (unix(7)).
func (o *Options) startEtcd(dir, socketDir string) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "client")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "peer")}
	advertised := url.URL{Scheme: "http", Host: "localhost:2380"} // of one member, never dialled
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "data")
	c.UnsafeNoFsync = o.UnsafeNoFsync
	c.LogLevel = "warn"
	c.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{client}, []url.URL{peer}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{advertised}, []url.URL{advertised}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, "unix://" + client.Path, nil
	case err = <-e.Err():
	case <-time.After(etcdStart):
		err = errors.New("did not become ready in time")
	}
	e.Close()
	return nil, "", err
}

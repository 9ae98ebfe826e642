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

// etcdStart is the maximum time for the start of the embedded etcd, including the replay of a large
// log.
const etcdStart = time.Minute

// socketDir creates the directory for the sockets and writes its path to dir/etcd/sockets. It first
// removes the directory of an earlier server that was killed. The caller must hold the lock of dir.
func socketDir(dir string) (string, error) {
	note := filepath.Join(dir, "etcd", "sockets")
	if left, err := os.ReadFile(note); err == nil { // #nosec G304 -- in the operator's directory
		name := filepath.Base(string(left))
		if !strings.HasPrefix(name, socketPrefix) {
			return "", fmt.Errorf("%s: this file was not written by kubetenant-local", note)
		}
		path := filepath.Join(os.TempDir(), name)
		if err := os.RemoveAll(path); err != nil { // #nosec G703 -- only a name with our prefix
			return "", err
		}
	}
	sockets, err := os.MkdirTemp("", socketPrefix)
	if err != nil {
		return "", err
	}
	return sockets, os.WriteFile(note, []byte(sockets), 0o600)
}

// socketPrefix is the prefix of the name of a directory for sockets.
const socketPrefix = "kubetenant-"

// startEtcd starts an etcd with one member, which stores its data in dir. etcd listens on unix
// sockets in socketDir. The path of socketDir must be short, because the path of a socket is
// limited to 108 bytes (unix(7)).
func (o *Options) startEtcd(dir, socketDir string) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "client")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "peer")}
	advertised := url.URL{Scheme: "http", Host: "localhost:2380"} // never used, because there is only one member
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

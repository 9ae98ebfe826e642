// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig creates self-contained kubeconfigs, and writes them atomically.
package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/tenant"
)

// Entry describes one identity on one server.
type Entry struct {
	// Cluster is a name for the server, and User is the name of the identity. Together with
	// Tenant, they make the names in the kubeconfig unique.
	Cluster, User string
	// Tenant is the tenant of the identity.
	Tenant tenant.ID
	// Server is the URL of the server.
	Server string
	// Namespace is the namespace of the context. It may be empty.
	Namespace string
	// Auth is the credential of the identity.
	Auth *clientcmdapi.AuthInfo
}

// New returns a kubeconfig with one entry. It embeds the certificate authority of the server from
// config.
func New(e *Entry, config *rest.Config) (*clientcmdapi.Config, error) {
	cluster := clientcmdapi.NewCluster()
	cluster.Server = e.Server
	cluster.TLSServerName = config.ServerName
	cluster.InsecureSkipTLSVerify = config.Insecure
	cluster.CertificateAuthorityData = config.CAData
	if len(config.CAData) == 0 && config.CAFile != "" {
		data, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the server's certificate authority: %w", err)
		}
		cluster.CertificateAuthorityData = data
	}
	// Both names contain the tenant, because two tenants may each have a user alice. The tenant is
	// not added twice if e.Cluster comes from a kubeconfig that New created.
	contextName := e.Tenant.String() + "@" + strings.TrimPrefix(e.Cluster, e.Tenant.String()+"@")
	userName := e.User + "/" + contextName
	if strings.HasSuffix(e.Server, "/tenants/"+e.Tenant.String()) {
		contextName += "-tenant-path" // a tenant path is a different server for clients
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[contextName] = cluster
	c.AuthInfos[userName] = e.Auth
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = contextName, userName, e.Namespace
	c.Contexts[userName] = context
	c.CurrentContext = userName
	return c, nil
}

// ErrExists reports that the file already exists.
var ErrExists = errors.New("the file already exists: use another name, or --merge to add to it")

// ErrNameInUse reports that a kubeconfig already uses a cluster name for a different server.
var ErrNameInUse = errors.New(
	"the name is already used for a different server, certificate authority or verification " +
		"setting: use --out to write a separate file",
)

// Write writes a new file that only its owner may read. If the file exists, the error wraps
// [ErrExists].
func Write(path string, c *clientcmdapi.Config) error {
	if err := CheckNotExists(path); err != nil {
		return err
	}
	data, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return replace(path, data, 0o600)
}

// Merge adds the entries of c to the kubeconfig at path, and creates the file if necessary. It
// sets the current context if none is set. It replaces users and contexts with the same name,
// and reports whether it replaced a user. Only the owner may read the file afterward. Merge
// locks the file as kubectl does. If the file uses a cluster name for a different server, the
// error wraps [ErrNameInUse].
func Merge(path string, c *clientcmdapi.Config) (replaced bool, err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL, 0) // #nosec G304 -- the caller chooses the path
	if errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("%s is locked by another process: if no kubectl is running, remove %s.lock", path, path)
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	defer func() {
		_ = lock.Close()
		_ = os.Remove(path + ".lock")
	}()
	into := clientcmdapi.NewConfig()
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm() &^ 0o077
		if into, err = clientcmd.LoadFromFile(path); err != nil {
			return false, fmt.Errorf("%s is not a valid kubeconfig and was not changed", path)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	for name, cluster := range c.Clusters {
		// A user in the file must not send its credential to a different server.
		if existing := into.Clusters[name]; existing != nil && !isSame(existing, cluster) {
			return false, fmt.Errorf("%s: cluster %q: %w", path, name, ErrNameInUse)
		}
		into.Clusters[name] = cluster
	}
	for name, user := range c.AuthInfos {
		_, existing := into.AuthInfos[name]
		replaced = replaced || existing
		into.AuthInfos[name] = user
	}
	for name, context := range c.Contexts {
		into.Contexts[name] = context
	}
	if into.CurrentContext == "" {
		into.CurrentContext = c.CurrentContext
	}
	data, err := clientcmd.Write(*into)
	if err != nil {
		return false, err
	}
	return replaced, replace(path, data, mode)
}

// isSame reports whether two entries have the same server, and verify its certificate in the
// same way.
func isSame(a, b *clientcmdapi.Cluster) bool {
	return a.Server == b.Server && bytes.Equal(a.CertificateAuthorityData, b.CertificateAuthorityData) &&
		a.CertificateAuthority == b.CertificateAuthority && a.InsecureSkipTLSVerify == b.InsecureSkipTLSVerify &&
		a.TLSServerName == b.TLSServerName
}

// replace replaces the content of a file atomically.
func replace(path string, data []byte, mode os.FileMode) error {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+strings.TrimPrefix(name, ".")+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("%s was not changed: %w", path, err)
	}
	return nil
}

// CheckNotExists returns an error that wraps [ErrExists] if there is a file at path.
func CheckNotExists(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return nil
}

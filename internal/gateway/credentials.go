// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The reasons why a kubeconfig of the gateway is rejected.
var (
	errInsecure = errors.New("insecure-skip-tls-verify is not allowed: the gateway must verify the certificate of " +
		"the cluster")
	errNoTLS        = errors.New("the server is not an https:// URL: the gateway does not send credentials without TLS")
	errImpersonates = errors.New("impersonation (as, as-uid, as-groups, as-user-extra) is not allowed in this kubeconfig")
	errTwoClusters  = errors.New("the kubeconfigs of reader and impersonator name different clusters: their servers " +
		"and certificate authorities differ")
)

// fingerprint is the SHA-256 digest of a kubeconfig or an audit policy. See [credential.fullDigest]
// for kubeconfigs.
type fingerprint [sha256.Size]byte

// credential is the configuration in a kubeconfig, and digests that change with its content.
type credential struct {
	*rest.Config
	fileDigest fingerprint
	// fullDigest covers the text of the kubeconfig, and the certificates, keys and CAs that it
	// contains or references. It does not cover a token file, which client-go reloads.
	fullDigest fingerprint
}

// loadKubeconfig reads a kubeconfig, and rejects settings that are unsafe for the gateway.
func loadKubeconfig(path string) (*credential, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		return nil, err
	}
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a kubeconfig", path) // err may repeat the content of the file
	}
	for _, c := range raw.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range raw.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	named := rest.TLSClientConfig{}
	if err == nil {
		named, err = checkCredential(config)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &credential{
		config,
		sha256.Sum256(data),
		sha256.Sum256(bytes.Join([][]byte{data, named.CAData, named.CertData, named.KeyData}, []byte{0})),
	}, nil
}

// checkCredential returns the TLS settings with the contents of the files that a configuration
// names, or the reason why the configuration is rejected.
func checkCredential(config *rest.Config) (rest.TLSClientConfig, error) {
	server, err := serverOf(config.Host)
	switch {
	case err != nil:
		return rest.TLSClientConfig{}, err
	case config.Insecure:
		return rest.TLSClientConfig{}, errInsecure
	case server.Scheme != "https":
		return rest.TLSClientConfig{}, errNoTLS
	case config.Impersonate.UserName != "":
		return rest.TLSClientConfig{}, errImpersonates
	}
	loaded := rest.CopyConfig(config)
	err = rest.LoadTLSFiles(loaded)
	return loaded.TLSClientConfig, err
}

// checkSameCluster returns an error if two credentials have different servers and different
// certificate authorities. One cluster may have several addresses with the same certificate
// authority.
func checkSameCluster(reader, impersonator *rest.Config) error {
	a, b := rest.CopyConfig(reader), rest.CopyConfig(impersonator)
	if err := errors.Join(rest.LoadTLSFiles(a), rest.LoadTLSFiles(b)); err != nil {
		return err
	}
	if a.Host != b.Host && !bytes.Equal(bytes.TrimSpace(a.CAData), bytes.TrimSpace(b.CAData)) {
		return errTwoClusters
	}
	return nil
}

const (
	// fileCheckInterval is the interval at which the gateway checks the files that are named in the
	// configuration and that no other component watches.
	fileCheckInterval = 2 * time.Second
	// rejectedChecks is the number of checks after which rejected files are tried again. Another
	// file may have been the reason, for example because it was incomplete.
	rejectedChecks = 10
)

// watchFiles applies changed kubeconfigs, changed files that they name, and changed audit policies,
// until ctx ends. It applies a change if two consecutive checks find the same contents. If the
// changed files are rejected, the current snapshot stays in use.
func (g *Gateway) watchFiles(ctx context.Context) {
	var previous, rejected map[string]fingerprint
	checks := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		current := g.current.Load()
		found, changed := current.changedFiles()
		settled := len(changed) > 0 && maps.Equal(found, previous)
		previous = found
		if checks++; !settled || maps.Equal(found, rejected) && checks < rejectedChecks {
			return
		}
		checks = 0
		rejected = nil
		renewed, err := g.renew(ctx, current)
		if err != nil {
			rejected = found
		}
		if err != nil || renewed {
			for _, path := range changed {
				g.stack.RecordReload(ctx, path, err)
			}
		}
	}, fileCheckInterval)
}

// renew builds a new snapshot from the settings of old, unless another snapshot has replaced old.
// In that case, the other snapshot was built from the changed files.
func (g *Gateway) renew(ctx context.Context, old *snapshot) (renewed bool, err error) {
	g.applyMu.Lock()
	defer g.applyMu.Unlock()
	if g.current.Load() != old {
		return false, nil
	}
	_, err = g.applySettingsLocked(ctx, old.settings)
	return err == nil, err
}

// changedFiles returns the fingerprints of the files of a snapshot, and the paths of the files
// whose content has changed since the snapshot was built. An invalid kubeconfig and a file that
// cannot be read have the zero fingerprint.
func (s *snapshot) changedFiles() (found map[string]fingerprint, changed []string) {
	found = map[string]fingerprint{}
	compare := func(path string, expected, actual fingerprint) {
		if found[path] = actual; actual != expected && !slices.Contains(changed, path) {
			changed = append(changed, path)
		}
	}
	for _, c := range s.routes {
		for path, expected := range c.files {
			actual, err := loadKubeconfig(path)
			if err != nil {
				actual = &credential{}
			}
			compare(path, expected, actual.fullDigest)
		}
	}
	if a := s.auditing; a.policyFile != "" {
		compare(a.policyFile, a.policyText, fingerprintOf(a.policyFile))
	}
	return found, changed
}

// fingerprintOf returns the fingerprint of a file, or the zero fingerprint if the file cannot be
// read.
func fingerprintOf(path string) fingerprint {
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		return fingerprint{}
	}
	return sha256.Sum256(data)
}

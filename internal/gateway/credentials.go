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

// What a kubeconfig of the gateway may not be.
var (
	errInsecure = errors.New("insecure-skip-tls-verify is not allowed: the gateway must verify the certificate of " +
		"the cluster")
	errPlain        = errors.New("the server is not an https:// URL: the gateway does not send credentials without TLS")
	errImpersonates = errors.New("impersonation (as, as-uid, as-groups, as-user-extra) is not allowed in this kubeconfig")
	errTwoClusters  = errors.New("the kubeconfigs of reader and impersonator name different clusters: their servers " +
		"and certificate authorities differ")
)

// fingerprint tells the contents of a kubeconfig apart from others.
type fingerprint [sha256.Size]byte

// credential is a kubeconfig as it was read.
type credential struct {
	*rest.Config
	text fingerprint
	// whole is of the text and of the certificates and authorities that it names too: a file of a
	// token is read anew by client-go.
	whole fingerprint
}

// load reads a kubeconfig.
func load(path string) (*credential, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		return nil, err
	}
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a kubeconfig", path) // not what stands in it
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

// checkCredential returns what the files of a configuration hold, or why it is refused.
func checkCredential(config *rest.Config) (rest.TLSClientConfig, error) {
	server, err := serverOf(config.Host)
	switch {
	case err != nil:
		return rest.TLSClientConfig{}, err
	case config.Insecure:
		return rest.TLSClientConfig{}, errInsecure
	case server.Scheme != "https":
		return rest.TLSClientConfig{}, errPlain
	case config.Impersonate.UserName != "":
		return rest.TLSClientConfig{}, errImpersonates
	}
	loaded := rest.CopyConfig(config)
	err = rest.LoadTLSFiles(loaded)
	return loaded.TLSClientConfig, err
}

// checkSameCluster returns why two credentials cannot be of one cluster: it may have several
// addresses, and one authority then.
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
	// filesEvery is how often the files are looked at that a configuration names
	// and nobody else follows.
	filesEvery = 2 * time.Second
	// refusedLooks is how many looks after ones that were refused they are tried again: another file
	// may not have been ready.
	refusedLooks = 10
)

// followFiles makes kubeconfigs, what they name, and audit policies that have changed count, until
// ctx ends: those that can be read, and were the same at two looks.
func (g *Gateway) followFiles(ctx context.Context) {
	var looked, refused map[string]fingerprint
	since := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		now := g.current.Load()
		found, changed := now.look()
		settled := len(changed) > 0 && maps.Equal(found, looked)
		looked = found
		if since++; !settled || maps.Equal(found, refused) && since < refusedLooks {
			return
		}
		since, refused = 0, nil
		renewed, err := g.renew(ctx, now)
		if err != nil {
			refused = found
		}
		if err != nil || renewed {
			for _, path := range changed {
				g.stack.Reloaded(ctx, path, err)
			}
		}
	}, filesEvery)
}

// renew makes a generation anew, unless another is in force by now: that has read the files itself.
func (g *Gateway) renew(ctx context.Context, of *generation) (renewed bool, err error) {
	g.following.Lock()
	defer g.following.Unlock()
	if g.current.Load() != of {
		return false, nil
	}
	_, err = g.apply(ctx, of.settings)
	return err == nil, err
}

// look returns the fingerprints of the files of a generation, and the files whose content is not the
// one in force. A file that cannot be read has the zero fingerprint.
func (now *generation) look() (found map[string]fingerprint, changed []string) {
	found = map[string]fingerprint{}
	note := func(path string, counts, is fingerprint) {
		if found[path] = is; is != counts && !slices.Contains(changed, path) {
			changed = append(changed, path)
		}
	}
	for _, c := range now.routes {
		for path, counts := range c.files {
			is, err := load(path)
			if err != nil {
				is = &credential{}
			}
			note(path, counts, is.whole)
		}
	}
	if a := now.auditing; a.policyFile != "" {
		note(a.policyFile, a.policyText, fingerprintOf(a.policyFile))
	}
	return found, changed
}

// fingerprintOf returns the fingerprint of a file, the zero one if the file cannot be read.
func fingerprintOf(path string) fingerprint {
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		return fingerprint{}
	}
	return sha256.Sum256(data)
}

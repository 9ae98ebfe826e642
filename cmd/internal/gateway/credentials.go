package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// What a kubeconfig of the gateway may not be.
var (
	errInsecure     = errors.New("insecure-skip-tls-verify would let anybody be the cluster")
	errPlain        = errors.New("the server is no https:// URL: credentials would be told to whoever listens")
	errImpersonates = errors.New("it names somebody to impersonate")
	errTwoClusters  = errors.New("the kubeconfigs of reader and impersonator lead to two clusters: another server, of another authority")
)

// fingerprint tells the contents of a kubeconfig apart from others.
type fingerprint [sha256.Size]byte

// load reads a kubeconfig. What it names by path client-go follows.
func load(path string) (*rest.Config, fingerprint, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if err != nil {
		return nil, fingerprint{}, err
	}
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fingerprint{}, fmt.Errorf("%s: is no kubeconfig", path) // not what stands in it
	}
	for _, c := range raw.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range raw.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fingerprint{}, fmt.Errorf("%s: %w", path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err == nil {
		err = checkCredential(config)
	}
	if err != nil {
		return nil, fingerprint{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, sha256.Sum256(data), nil
}

func checkCredential(config *rest.Config) error {
	server, err := serverOf(config.Host)
	switch {
	case err != nil:
		return err
	case config.Insecure:
		return errInsecure
	case server.Scheme != "https":
		return errPlain
	case config.Impersonate.UserName != "":
		return errImpersonates
	}
	return rest.LoadTLSFiles(rest.CopyConfig(config))
}

// checkSameCluster returns why two credentials cannot be of one cluster: it may have several addresses, and one authority then.
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
	// credentialsEvery is how often the kubeconfigs are looked at.
	credentialsEvery = 2 * time.Second
	// refusedLooks is how many looks after ones that were refused they are tried again: another file may not have been ready.
	refusedLooks = 10
)

// followCredentials makes kubeconfigs that have changed count, until ctx ends: those that can be read, and were the same at two looks.
func (g *Gateway) followCredentials(ctx context.Context) {
	var looked, refused map[string]fingerprint
	since := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		now := g.current.Load()
		found, changed := now.look()
		settled := changed && maps.Equal(found, looked)
		looked = found
		if since++; !settled || maps.Equal(found, refused) && since < refusedLooks {
			return
		}
		since, refused = 0, nil
		switch renewed, err := g.renew(ctx, now); {
		case err != nil:
			refused = found
			klog.FromContext(ctx).Error(err, "Refused a new version of a kubeconfig: the one before stays")
		case renewed:
			klog.FromContext(ctx).Info("Took over a new version of a kubeconfig")
		}
	}, credentialsEvery)
}

// renew makes a generation anew, unless another is in force by now: that has read the kubeconfigs itself.
func (g *Gateway) renew(ctx context.Context, of *generation) (renewed bool, err error) {
	g.following.Lock()
	defer g.following.Unlock()
	if g.current.Load() != of {
		return false, nil
	}
	_, err = g.take(ctx, of.settings)
	return err == nil, err
}

// look returns what stands in the kubeconfigs of a generation now, and whether that is another than counts.
func (now *generation) look() (found map[string]fingerprint, changed bool) {
	found = map[string]fingerprint{}
	for _, c := range now.routes {
		for path, counts := range c.credentials {
			_, is, err := load(path)
			if err != nil {
				is = counts // it is tried again
			}
			found[path] = is
			changed = changed || is != counts
		}
	}
	return found, changed
}

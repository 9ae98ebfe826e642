// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
)

// announcement returns a hook that prints how to use the server as soon as the server is ready.
// The hook uses the server's own loopback client, because every configuration allows its
// requests.
func (c *cluster) announcement(out io.Writer, started time.Time) app.Hook {
	_, _ = fmt.Fprintf(out, "starting kube-apiserver in %s ...\n", c.dir)
	return app.Hook{Name: "kubetenant-local-announcement", Start: func(h genericapiserver.PostStartHookContext) error {
		client, err := kubernetes.NewForConfig(h.LoopbackClientConfig)
		if err != nil {
			return err
		}
		go func() {
			err := wait.PollUntilContextCancel(h, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
			})
			if err == nil {
				c.announce(out, time.Since(started))
			}
		}()
		return nil
	}}
}

func (c *cluster) announce(out io.Writer, after time.Duration) {
	_, _ = fmt.Fprintf(out, "ready after %.1f s\n\n  %-27s %s\n  %-27s %s\n  %-27s %s\n  %-27s %s\n", after.Seconds(),
		"server", c.server, "directory", c.dir, "configuration", c.config, "log", c.dir+"/kube-apiserver.log")
	if c.gateway != "" {
		_, _ = fmt.Fprintf(out, "  %-27s %s\n", "gateway", c.gateway)
	}
	for _, k := range c.kubeconfigs {
		_, _ = fmt.Fprintf(out, "  %-27s kubectl --kubeconfig %s\n", k.description, k.path)
	}
	_, _ = fmt.Fprintf(out, "\nStop it with Ctrl-C or: kill %d\n", os.Getpid())
}

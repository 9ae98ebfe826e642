// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// kubeconfig returns a kubeconfig. entries lists NAME=SERVER, and contexts lists
// NAME=ENTRY,USER.
func kubeconfig(current, entries, contexts string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "apiVersion: v1\nkind: Config\ncurrent-context: %q\nclusters:\n", current)
	for entry := range strings.FieldsSeq(entries) {
		name, server, _ := strings.Cut(entry, "=")
		_, _ = fmt.Fprintf(&b, "- { name: %q, cluster: { server: %q } }\n", name, server)
	}
	users := map[string]bool{}
	b.WriteString("contexts:\n")
	for context := range strings.FieldsSeq(contexts) {
		name, rest, _ := strings.Cut(context, "=")
		entry, user, _ := strings.Cut(rest, ",")
		users[user] = true
		_, _ = fmt.Fprintf(&b, "- { name: %q, context: { cluster: %q, user: %q } }\n", name, entry, user)
	}
	b.WriteString("users:\n")
	for user := range users {
		_, _ = fmt.Fprintf(&b, "- { name: %q, user: { token: \"token of %s\" } }\n", user, user)
	}
	return b.String()
}

// TestNamedClusters checks that --cluster finds a cluster of the kubeconfig or of a gateway. It
// must not send a credential to a server unless the kubeconfig combines them.
func TestNamedClusters(t *testing.T) {
	const (
		gw    = "https://gw.example.com"
		other = "https://other.example.com"
		two   = "acme@eu1=" + gw + "/clusters/eu1 acme@us1=" + gw + "/clusters/us1/"
		alice = "alice/acme@eu1=acme@eu1,alice/acme@eu1 alice/acme@us1=acme@us1,alice/acme@us1"
	)
	for name, c := range map[string]struct {
		kubeconfig, clusters string
		want                 string // "<name> <host> <user>" of each cluster, or a part of the error
	}{
		"two clusters behind a gateway": {
			kubeconfig("alice/acme@eu1", two, alice), "eu1,us1",
			"eu1 " + gw + "/clusters/eu1 alice/acme@eu1, us1 " + gw + "/clusters/us1/ alice/acme@us1",
		},
		"contexts of two users": {
			kubeconfig("alice/acme@eu1", two, alice+" bob/acme@us1=acme@us1,bob/acme@us1"), "us1",
			"us1 " + gw + "/clusters/us1/ alice/acme@us1",
		},
		"context of another user": {
			kubeconfig("alice/acme@eu1", two, "alice/acme@eu1=acme@eu1,alice/acme@eu1 bob/acme@us1=acme@us1,bob/acme@us1"),
			"us1", `neither as a cluster nor as a context of your user`,
		},
		"context of the same user in another tenant": {
			kubeconfig("alice/acme@eu1", two, "alice/acme@eu1=acme@eu1,alice/acme@eu1 a=acme@us1,alice/globex@us1"),
			"us1", `neither as a cluster nor as a context of your user`,
		},
		"cluster of another gateway": {
			kubeconfig("a", "e="+gw+"/clusters/eu1 u="+other+"/clusters/us1", "a=e,x b=u,x"), "us1",
			`neither as a cluster nor as a context of your user`,
		},
		"current context at the root of the gateway": {
			kubeconfig("a", "root="+gw+" u="+gw+"/clusters/us1", "a=root,x b=u,x"), "us1", "us1 " + gw + "/clusters/us1 x",
		},
		"current cluster not behind a gateway": {
			kubeconfig("a", "direct="+other+" u="+gw+"/clusters/us1", "a=direct,x b=u,y"), "us1",
			"us1 " + gw + "/clusters/us1 y",
		},
		"current cluster not behind a gateway, two gateways": {
			kubeconfig("a", "direct=https://d u="+gw+"/clusters/us1 v="+other+"/clusters/us1", "a=direct,x b=u,y c=v,z"), "us1",
			"matches the contexts b, c: select one with --context",
		},
		"current context with a tenant path": {
			kubeconfig("a", "e="+gw+"/clusters/eu1/tenants/acme u="+gw+"/clusters/us1 v="+gw+"/clusters/us1/tenants/acme",
				"a=e,x b=u,x c=v,x"), "us1",
			"us1 " + gw + "/clusters/us1/tenants/acme x",
		},
		"two contexts of the same user": {
			kubeconfig("a", "e="+gw+"/clusters/eu1 u="+gw+"/clusters/us1", "a=e,x b=u,x c=u,x"), "us1",
			"matches the contexts b, c: select one with --context",
		},
		"gateway URL with a path": {
			kubeconfig("a", "e="+gw+"/k/clusters/eu1 u="+gw+"/clusters/us1 v="+gw+"/k/clusters/us1", "a=e,x b=u,x c=v,x"), "us1",
			"us1 " + gw + "/k/clusters/us1 x",
		},
		"entry of the current context": {
			kubeconfig("a", "eu1=https://1 us1=https://2", "a=eu1,x b=us1,y"), "eu1", "eu1 https://1 x",
		},
		"another entry, with a context of the same user": {
			kubeconfig("admin", "eu1=https://1 us1=https://2", "admin=eu1,admin admin@us1=us1,admin@us1 b=us1,bob"), "eu1,us1",
			"eu1 https://1 admin, us1 https://2 admin@us1",
		},
		"another entry, without a context of the same user": {
			kubeconfig("a", "eu1=https://1 us1=https://2", "a=eu1,x b=us1,y"), "us1", "us1 https://2 x",
		},
		"name of an entry and of a cluster behind a gateway": {
			kubeconfig("a", "us1=https://2 e="+gw+"/clusters/eu1 u="+gw+"/clusters/us1", "a=e,x b=u,x c=us1,x"), "us1",
			"us1 https://2 x",
		},
		"unknown cluster": {
			kubeconfig("a", "e=https://1", "a=e,x"), "nosuch",
			"create it with kubectl tenant gen-kubeconfig --gateway URL --cluster nosuch",
		},
		"same cluster twice": {
			kubeconfig("alice/acme@eu1", two, alice), "eu1,acme@eu1",
			`--cluster eu1 and acme@eu1 use the same context "alice/acme@eu1"`,
		},
		"empty kubeconfig":   {"", "eu1", "no kubeconfig found"},
		"no current context": {kubeconfig("", "eu1=https://1", "a=eu1,x"), "eu1", "no current context"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := clusters(t, c.kubeconfig)
			cmd := &cobra.Command{Use: "test"}
			f.AddClusters(cmd)
			if err := cmd.ParseFlags([]string{"--cluster", c.clusters}); err != nil {
				t.Fatal(err)
			}
			all, err := f.Clusters()
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
				return
			}
			var got []string
			for _, found := range all {
				got = append(got, found.Name+" "+found.Config.Host+" "+strings.TrimPrefix(found.Config.BearerToken, "token of "))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%q; want %q", strings.Join(got, ", "), c.want)
			}
		})
	}
}

// TestClusterFlagConflicts checks that --cluster cannot be combined with other flags that select a
// cluster.
func TestClusterFlagConflicts(t *testing.T) {
	for _, beside := range []string{"context", "server"} {
		f, parent := clusters(t, kubeconfig("a", "e=https://1", "a=e,x"), "--"+beside, "https://1")
		cmd := &cobra.Command{Use: "test"}
		parent.AddCommand(cmd)
		f.AddClusters(cmd)
		if err := cmd.ParseFlags([]string{"--cluster", "e"}); err != nil {
			t.Fatal(err)
		}
		if all, err := f.Clusters(); err == nil || !strings.Contains(err.Error(), "cannot be used together") {
			t.Errorf("%s: %v, %v", beside, all, err)
		}
	}
}

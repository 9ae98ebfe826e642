// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/test/idp"
)

// projectWalk demonstrates the lifecycle of a Keystone project: the project is created, a member
// gets and loses a role, and the project is deleted.
type projectWalk struct {
	*demo
	keystone  *idp.Keystone
	domain    idp.Domain // projectDomain
	project   string     // the ID of the project
	namespace string     // the namespace of the project
}

// projectDomain is a domain without a Tenant, so the server creates the Tenant. The callers of
// this tenant initially have no permissions in the cluster.
const projectDomain = "hooli"

// applyTimeout is the maximum time to wait until the server applies a change. The server reads
// Keystone every 10 seconds.
const applyTimeout = time.Minute

// run makes the changes in Keystone, and sends requests that show the effect of each change. It
// returns the number of unexpected results.
func (p *projectWalk) run(ctx context.Context) (differences int, err error) {
	for _, step := range []struct {
		what     string
		change   func(context.Context) error
		requests func() []request
	}{
		{"The project shop is created in the domain hooli. Its member alice gets a namespace:", p.create, p.asMember},
		{"The member alice loses the role, and the server deletes its RoleBindings:", p.revoke, p.asFormerMember},
		{"The project is deleted. Its namespace remains:", p.end, p.afterwards},
	} {
		_, _ = fmt.Fprintln(p.out, "\n"+step.what)
		if err := step.change(ctx); err != nil {
			return differences, err
		}
		more, err := p.walk(ctx, step.requests())
		if differences += more; err != nil {
			return differences, err
		}
	}
	return differences, nil
}

func (p *projectWalk) create(ctx context.Context) (err error) {
	p.project, err = p.keystone.Make(ctx, "/projects", "project",
		map[string]any{"name": "shop", "domain_id": p.domain.ID})
	if err != nil {
		return err
	}
	p.namespace = projectDomain + "--shop-" + p.project[:8]
	if err := p.keystone.Assign(ctx, "/projects/"+p.project, p.domain.User, "member"); err != nil {
		return err
	}
	token, err := p.keystone.Token(ctx, projectDomain, "alice", idp.Project("shop", projectDomain))
	if err != nil {
		return err
	}
	if err := p.writeKubeconfig("hooli-shop", clientcmdapi.AuthInfo{Token: token}); err != nil {
		return err
	}
	return p.awaitOutput(ctx, "yes", "hooli-shop", "auth can-i create configmaps -n "+p.namespace)
}

func (p *projectWalk) revoke(ctx context.Context) error {
	role, err := p.keystone.RoleID(ctx, "member")
	if err != nil {
		return err
	}
	if err := p.keystone.Do(ctx, "", http.MethodDelete,
		"/projects/"+p.project+"/users/"+p.domain.User+"/roles/"+role, nil, nil); err != nil {
		return err
	}
	return p.awaitOutput(ctx, "no", "hooli-shop", "auth can-i create configmaps -n "+p.namespace)
}

func (p *projectWalk) end(ctx context.Context) error {
	if err := p.keystone.Do(ctx, "", http.MethodDelete, "/projects/"+p.project, nil, nil); err != nil {
		return err
	}
	return p.awaitOutput(ctx, "missingSince", "ops-token",
		"get namespace "+p.namespace+" -o jsonpath={.metadata.annotations.kubetenant\\.dev/keystone}")
}

func (p *projectWalk) asMember() []request {
	return []request{
		{"hooli's alice", "Keystone, project shop", "hooli-shop", p.in("create configmap hello"), "", "answered", ""},
		{"hooli's alice", "Keystone, project web", "hooli-keystone", p.in("create configmap more"), "", "403", ""},
		{"globex's alice", "Keystone, project web", "globex-keystone", p.in("get configmap hello"), "", "403", ""},
	}
}

func (p *projectWalk) asFormerMember() []request {
	return []request{
		{"hooli's alice", "Keystone, project shop", "hooli-shop", p.in("get configmap hello"), "", "403", ""},
	}
}

func (p *projectWalk) afterwards() []request {
	return []request{
		{"the cluster's ops", "token", "ops-token", p.in("get configmap hello -o name"), "", "answered", "configmap/hello"},
	}
}

func (p *projectWalk) in(args string) []string { return words(args + " -n " + p.namespace) }

// awaitOutput waits until the output of kubectl contains a text.
func (p *projectWalk) awaitOutput(ctx context.Context, text, caller, args string) error {
	output := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, applyTimeout, true, func(ctx context.Context) (bool, error) {
		// The command can-i fails if the access is denied.
		output, _ = p.demo.run(ctx, caller, "", words(args)...)
		return strings.Contains(output, text), nil
	})
	if err != nil {
		return fmt.Errorf("kubectl %s as %s: %w: %w", args, caller, err, errors.New(output))
	}
	return nil
}

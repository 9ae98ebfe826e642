// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/internal/cli/kubeconfig"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// cluster returns a client for a fake cluster, and the number of CertificateSigningRequests that
// were not deleted. approved specifies whether the caller may approve requests. becomes sets the
// status of a request when it is created.
func cluster(approved bool, becomes func(*certificatesv1.CertificateSigningRequest)) (*fake.Clientset, *int) {
	k, remaining := fake.NewClientset(), 0
	var stored *certificatesv1.CertificateSigningRequest
	k.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true,
			&authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: approved}}, nil
	})
	k.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		stored = a.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest).DeepCopy()
		stored.Name = stored.GenerateName + "abc"
		remaining++
		becomes(stored)
		return true, stored.DeepCopy(), nil
	})
	k.PrependReactor("update", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		stored.Status.Conditions = append(stored.Status.Conditions,
			a.(clienttesting.UpdateAction).GetObject().(*certificatesv1.CertificateSigningRequest).Status.Conditions...)
		return true, stored, nil
	})
	k.PrependReactor("get", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, stored.DeepCopy(), nil
	})
	k.PrependReactor("delete", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		remaining--
		return true, nil, nil
	})
	return k, &remaining
}

// TestSign checks the error for each result of a request, and that the request is always deleted.
func TestSign(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions,
				certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Message: "because"})
		}
	}
	for name, c := range map[string]struct {
		may     bool
		becomes func(*certificatesv1.CertificateSigningRequest)
		want    error
	}{
		"signed": {
			true, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("PEM") }, nil,
		},
		"denied":                   {false, condition(certificatesv1.CertificateDenied), kubeconfig.ErrDenied},
		"failed":                   {true, condition(certificatesv1.CertificateFailed), kubeconfig.ErrDenied},
		"not approved":             {false, func(*certificatesv1.CertificateSigningRequest) {}, kubeconfig.ErrWaiting},
		"not signed":               {true, func(*certificatesv1.CertificateSigningRequest) {}, kubeconfig.ErrNoSigner},
		"approved by another user": {false, condition(certificatesv1.CertificateApproved), kubeconfig.ErrNoSigner},
	} {
		t.Run(name, func(t *testing.T) {
			k, remaining := cluster(c.may, c.becomes)
			within := time.Minute
			if errors.Is(c.want, kubeconfig.ErrWaiting) || errors.Is(c.want, kubeconfig.ErrNoSigner) {
				within = 300 * time.Millisecond
			}
			r := &kubeconfig.Request{
				User:    "alice",
				Groups:  []string{"dev"},
				Tenant:  tenanttest.ID(t, "acme"),
				Expiry:  time.Hour,
				Timeout: within,
				Printf:  func(string, ...any) {},
			}
			_, key, err := r.Sign(t.Context(), k)
			if !errors.Is(err, c.want) || (err == nil) != (len(key) > 0) {
				t.Errorf("Sign() = %v, want %v", err, c.want)
			}
			if *remaining != 0 {
				t.Errorf("%d requests remain", *remaining)
			}
		})
	}
}

// TestRequest checks that the subject has the new format, and that the key is P-256.
func TestRequest(t *testing.T) {
	r := &kubeconfig.Request{
		User:   "alice",
		Groups: []string{"dev", "ops"},
		Tenant: tenanttest.ID(t, "acme"),
		Expiry: 24 * time.Hour,
	}
	key, err := kubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	object, err := r.Object(key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(object.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || request.CheckSignature() != nil {
		t.Fatal(err)
	}
	if got := request.Subject.ToRDNSequence().String(); got != "CN=alice,OU=dev+OU=ops,O=tenant:acme" ||
		key.Curve.Params().Name != "P-256" {
		t.Errorf("subject %s of %s", got, key.Curve.Params().Name)
	}
	beside := *r
	beside.AsOrganizations = true
	if got := beside.Subject().ToRDNSequence().String(); got != "CN=alice,O=dev+O=ops+O=tenant:acme" &&
		got != "CN=alice,O=tenant:acme+O=dev+O=ops" {
		t.Errorf("subject %s", got)
	}
	if *object.Spec.ExpirationSeconds != 86400 || object.Spec.SignerName != "kubernetes.io/kube-apiserver-client" ||
		object.Name != "" {
		t.Errorf("%+v", object.Spec)
	}
	r.Expiry = time.Minute
	if _, err := r.Object(key); !errors.Is(err, kubeconfig.ErrTooShort) {
		t.Errorf("expiry of one minute: %v", err)
	}
}

func entry(t *testing.T, user string) *clientcmdapi.Config {
	t.Helper()
	auth := clientcmdapi.NewAuthInfo()
	auth.Token = "t"
	c, err := kubeconfig.New(&kubeconfig.Entry{
		Cluster: "c",
		User:    user,
		Tenant:  tenanttest.ID(t, "acme"),
		Server:  "https://example.com",
		Auth:    auth,
	},
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("CA")}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMerge(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "config"), filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.Write(path, entry(t, "first")); err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.Write(path, entry(t, "again")); !errors.Is(err, kubeconfig.ErrExists) {
		t.Errorf("Write() to an existing file = %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfig.Merge(link, entry(t, "second")); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.LoadFromFile(path)
	if err != nil || len(got.Contexts) != 2 || got.CurrentContext != "first/acme@c" {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("Merge replaced the symbolic link: %v, %v", info.Mode(), err)
	}
	// Merge does not change a cluster entry that has the same name but a different server.
	for what, change := range map[string]func(*clientcmdapi.Cluster){
		"address":         func(c *clientcmdapi.Cluster) { c.Server = "https://elsewhere.example.com" },
		"authority":       func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte("another") },
		"no verification": func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify = true },
		"TLS server name": func(c *clientcmdapi.Cluster) { c.TLSServerName = "elsewhere" },
	} {
		t.Run(what, func(t *testing.T) {
			other := entry(t, "third")
			change(other.Clusters["acme@c"])
			if _, err := kubeconfig.Merge(path, other); !errors.Is(err, kubeconfig.ErrNameInUse) {
				t.Errorf("%s = %v, want ErrNameInUse", what, err)
			}
		})
	}
	if replaced, err := kubeconfig.Merge(path, entry(t, "second")); err != nil || !replaced {
		t.Errorf("replaced user = %v, %v", replaced, err)
	}
	// Merge changes neither an invalid kubeconfig nor a locked one.
	if err := os.WriteFile(path, []byte("nonsense: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfig.Merge(path, entry(t, "third")); err == nil {
		t.Error("no error for an invalid kubeconfig")
	}
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfig.Merge(path, entry(t, "third")); err == nil ||
		!strings.Contains(err.Error(), "remove "+path+".lock") {
		t.Errorf("locked file = %v", err)
	}
	data, _ := os.ReadFile(path)
	if string(data) != "nonsense: [" {
		t.Errorf("the file is %q", data)
	}
}

// TestMergeAtOnce checks that each of several concurrent merges either succeeds or returns an
// error, and no entry of a successful merge is lost.
func TestMergeAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	done := make(chan error)
	for i := range 20 {
		go func() {
			_, err := kubeconfig.Merge(path, entry(t, fmt.Sprint("user", i)))
			done <- err
		}()
	}
	merged := 0
	for range 20 {
		if <-done == nil {
			merged++
		}
	}
	got, err := clientcmd.LoadFromFile(path)
	if err != nil || len(got.Contexts) != merged || merged == 0 {
		t.Errorf("%d contexts in the file after %d successful merges, %v", len(got.Contexts), merged, err)
	}
}

func TestInterrupted(t *testing.T) {
	k, remaining := cluster(true, func(*certificatesv1.CertificateSigningRequest) {})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := &kubeconfig.Request{
		User:    "alice",
		Tenant:  tenanttest.ID(t, "acme"),
		Expiry:  time.Hour,
		Timeout: time.Minute,
		Printf:  func(string, ...any) {},
	}
	if _, _, err := r.Sign(ctx, k); !errors.Is(err, context.DeadlineExceeded) || *remaining != 0 {
		t.Errorf("Sign() = %v , %d requests remain", err, *remaining)
	}
}

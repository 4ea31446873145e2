//! Credentials that are read again: before they expire, every quarter of an hour, and when the store refuses them,
//! because keys in a file may have been rotated.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_config::Region;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, future};
use aws_sdk_s3::config::SharedHttpClient;

/// Credentials are read again after this time, also those that do not expire.
const READ_EVERY: Duration = Duration::from_mins(15);
/// Time before the end of credentials at which new ones are read.
const BEFORE_END: Duration = Duration::from_mins(5);
/// Time between two reads while the present credentials are still good, or are refused without being replaced.
const BETWEEN: Duration = Duration::from_mins(1);
const BETWEEN_REFUSALS: Duration = Duration::from_secs(1);

/// The credentials of environment, profile, web identity, container or instance.
#[derive(Debug, Clone)]
pub(super) struct Renewable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    profile: Option<String>,
    region: Option<Region>,
    http: SharedHttpClient,
    state: Mutex<State>,
    /// Held while they are read, so that concurrent requests wait for one read.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// Counts the reads that brought other credentials.
    generation: u64,
    /// When a refusal last led to a read that brought none.
    refused: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    credentials: Credentials,
    read: Instant,
}

impl Kept {
    fn ends_within(&self, time: Duration) -> bool {
        let end = self.credentials.expiry();
        end.is_some_and(|end| end <= SystemTime::now() + time)
    }

    fn is_current(&self) -> bool {
        let age = self.read.elapsed();
        let renew_early = self.ends_within(BEFORE_END) && age >= BETWEEN;
        !self.ends_within(Duration::ZERO) && !renew_early && age < READ_EVERY
    }
}

impl Renewable {
    pub(super) fn new(
        profile: Option<String>,
        region: Option<Region>,
        http: SharedHttpClient,
    ) -> Self {
        Self(Arc::new(Shared {
            profile,
            region,
            http,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns a number that changes with the credentials.
    pub(super) fn generation(&self) -> u64 {
        self.0.state().generation
    }

    /// Reads the credentials again after a refusal of those with the number `generation`; returns whether there are
    /// others now.
    pub(super) async fn renew(&self, generation: u64) -> bool {
        let just_done = |state: &State| {
            let since = state.refused.map(|at| at.elapsed());
            since.is_some_and(|since| since < BETWEEN_REFUSALS)
        };
        {
            let state = self.0.state();
            if state.generation != generation || just_done(&state) {
                return state.generation != generation;
            }
        }
        let shared = Arc::clone(&self.0);
        // A task of its own: the time-out of a request does not interrupt it.
        let read = tokio::spawn(async move {
            let _one = shared.reading.lock().await;
            if shared.state().generation == generation {
                // A failure is reported by the next request.
                let _ = shared.read().await;
            }
            let mut state = shared.state();
            let renewed = state.generation != generation;
            if !renewed {
                state.refused = Some(Instant::now());
            }
            renewed
        });
        read.await.unwrap_or(false)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Credentials> {
        let state = self.state();
        let kept = state.kept.as_ref().filter(|kept| kept.is_current());
        kept.map(|kept| kept.credentials.clone())
    }

    /// Returns the present credentials, or reads them.
    async fn credentials(self: Arc<Self>) -> provider::Result {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let reading = tokio::spawn(async move {
            let _one = self.reading.lock().await;
            match self.current() {
                Some(current) => Ok(current),
                None => self.read().await,
            }
        });
        reading
            .await
            .unwrap_or_else(|why| Err(CredentialsError::unhandled(why)))
    }

    /// Reads the credentials anew. The chain is made anew too, because it keeps the files that it has read.
    async fn read(&self) -> provider::Result {
        let config = ProviderConfig::without_region().with_http_client(self.http.clone());
        let mut chain = DefaultCredentialsChain::builder()
            .configure(config)
            .region(self.region.clone());
        if let Some(profile) = &self.profile {
            chain = chain.profile_name(profile);
        }
        let read = chain.build().await.provide_credentials().await;
        self.note(read)
    }

    /// Keeps what was read; without it, the present credentials as long as they are valid.
    fn note(&self, read: provider::Result) -> provider::Result {
        let mut state = self.state();
        match (read, &mut state.kept) {
            (Ok(new), kept) => {
                let same = kept
                    .as_ref()
                    .is_some_and(|kept| is_same(&kept.credentials, &new));
                let first = kept.is_none();
                *kept = Some(Kept {
                    credentials: new.clone(),
                    read: Instant::now(),
                });
                if !same {
                    state.generation += 1;
                    state.refused = None;
                }
                if !same && !first {
                    tracing::info!(
                        "the store's credentials have changed; requests use the new ones"
                    );
                }
                Ok(new)
            }
            (Err(why), Some(kept)) if !kept.ends_within(Duration::ZERO) => {
                let error = crate::message::chain(&why);
                tracing::warn!(
                    error,
                    "cannot read the store's credentials again; keeping the present ones"
                );
                kept.read = Instant::now();
                Ok(kept.credentials.clone())
            }
            (Err(why), _) => Err(why),
        }
    }
}

fn is_same(one: &Credentials, other: &Credentials) -> bool {
    let parts = |all: &Credentials| {
        let token = all.session_token().map(str::to_owned);
        (
            all.access_key_id().to_owned(),
            all.secret_access_key().to_owned(),
            token,
        )
    };
    parts(one) == parts(other)
}

impl ProvideCredentials for Renewable {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(Arc::clone(&self.0).credentials())
    }
}
